"""The body of POST /v1/chat/completions as clients may write it: types and ranges, no meaning.

The same structs decode requests and describe them in /openapi.json, so the page is true. Fields
are in three groups: what is understood; what is refused unless it asks for nothing (`Inert`); and
what changes no answer and is let through unread. Every other field is refused by name.

What is a list or a map has a most, because all of it is made into objects; what is not understood
yet is not even made into objects, whatever it holds.
"""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

_Name = Annotated[str, Meta(min_length=1, max_length=256)]
_Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Probability = Annotated[float, Meta(ge=0, le=1)]
# Engines take float32 from 1e-6 and 1e-3 on; what is let through here is in range there, too.
_Share = Annotated[float, Meta(ge=1e-5, le=1)]
_Factor = Annotated[float, Meta(ge=1e-3, le=10)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]

_NOT_YET = Meta(description="Not supported yet; refused when it asks for something.")
_UNREAD = Meta(description="Accepted and ignored.")
NotYet = Annotated[Raw | UnsetType, _NOT_YET]
Unread = Annotated[Raw | UnsetType, _UNREAD]

MOST_MESSAGES = 16_384
MOST_PARTS = 1_024
MOST_STOPS = 64
MOST_BIASES = 1_024
_MOST_MODALITIES = 8


class ContentPart(msgspec.Struct, forbid_unknown_fields=True):
    """A piece of a message; only `text` is supported yet."""

    type: str
    text: str | None = None
    image_url: NotYet = UNSET
    input_audio: NotYet = UNSET
    file: NotYet = UNSET
    refusal: str | None = None
    cache_control: Unread = UNSET


class ChatMessage(msgspec.Struct, forbid_unknown_fields=True):
    """One turn of the conversation."""

    role: str
    content: str | Annotated[list[ContentPart], Meta(max_length=MOST_PARTS)] | None = None
    name: Annotated[str, Meta(max_length=256)] | None = None
    reasoning_content: str | None = None
    tool_calls: NotYet = UNSET
    tool_call_id: NotYet = UNSET
    function_call: NotYet = UNSET
    audio: NotYet = UNSET
    refusal: Unread = UNSET
    annotations: Unread = UNSET


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """How the stream is told."""

    include_usage: bool = False
    include_obfuscation: Unread = UNSET


class ResponseFormat(msgspec.Struct):
    """What the answer must look like; only `{"type": "text"}` is supported yet."""

    type: str


class ChatBody(msgspec.Struct, forbid_unknown_fields=True):
    """A chat completion request."""

    model: _Name
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MOST_MESSAGES)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: _Tokens | None = None
    max_completion_tokens: _Tokens | None = None
    stop: str | Annotated[list[str], Meta(max_length=MOST_STOPS)] | None = None
    n: int | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: _Share | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    logit_bias: (
        Annotated[dict[str, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=MOST_BIASES)]
        | None
    ) = None
    # Beyond OpenAI's own:
    top_k: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    min_p: _Probability | None = None
    typical_p: _Share | None = None
    repetition_penalty: _Factor | None = None
    ignore_eos: bool | None = None
    # Refused when they ask for something:
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    modalities: Annotated[list[str], Meta(max_length=_MOST_MODALITIES)] | None = None
    tools: NotYet = UNSET
    tool_choice: NotYet = UNSET
    functions: NotYet = UNSET
    function_call: NotYet = UNSET
    audio: NotYet = UNSET
    web_search_options: NotYet = UNSET
    reasoning_effort: NotYet = UNSET
    verbosity: NotYet = UNSET
    # Let through:
    user: Unread = UNSET
    metadata: Unread = UNSET
    store: Unread = UNSET
    service_tier: Unread = UNSET
    parallel_tool_calls: Unread = UNSET
    prediction: Unread = UNSET
    prompt_cache_key: Unread = UNSET
    prompt_cache_retention: Unread = UNSET
    safety_identifier: Unread = UNSET


decoder = msgspec.json.Decoder(ChatBody)
