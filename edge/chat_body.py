"""The body of POST /v1/chat/completions as clients may write it: types and ranges, no meaning.

The same structs decode requests and describe them in /openapi.json, so the page is true. Fields
are in three groups: what is understood; what is refused unless it asks for nothing (`Inert`); and
what changes no answer and is let through unread. Every other field is refused by name.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

_Name = Annotated[str, Meta(min_length=1, max_length=256)]
_Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Probability = Annotated[float, Meta(ge=0, le=1)]
_Share = Annotated[float, Meta(gt=0, le=1)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]

_NOT_YET = Meta(description="Not supported yet; refused when it asks for something.")
_UNREAD = Meta(description="Accepted and ignored.")
NotYet = Annotated[Any, _NOT_YET]
Unread = Annotated[Any, _UNREAD]


class ContentPart(msgspec.Struct, forbid_unknown_fields=True):
    """A piece of a message; only `text` is supported yet."""

    type: str
    text: str | None = None
    image_url: NotYet = None
    input_audio: NotYet = None
    file: NotYet = None
    refusal: str | None = None
    cache_control: Unread = None


class ChatMessage(msgspec.Struct, forbid_unknown_fields=True):
    """One turn of the conversation."""

    role: str
    content: str | list[ContentPart] | None = None
    name: Annotated[str, Meta(max_length=256)] | None = None
    reasoning_content: str | None = None
    tool_calls: NotYet = None
    tool_call_id: NotYet = None
    function_call: NotYet = None
    audio: NotYet = None
    refusal: Unread = None
    annotations: Unread = None


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """How the stream is told."""

    include_usage: bool = False
    include_obfuscation: Unread = None


class ResponseFormat(msgspec.Struct):
    """What the answer must look like; only `{"type": "text"}` is supported yet."""

    type: str


class ChatBody(msgspec.Struct, forbid_unknown_fields=True):
    """A chat completion request."""

    model: _Name
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: _Tokens | None = None
    max_completion_tokens: _Tokens | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: _Share | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    # Beyond OpenAI's own:
    top_k: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    min_p: _Probability | None = None
    typical_p: _Share | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    ignore_eos: bool | None = None
    # Refused when they ask for something:
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    modalities: list[str] | None = None
    tools: NotYet = None
    tool_choice: NotYet = None
    functions: NotYet = None
    function_call: NotYet = None
    audio: NotYet = None
    web_search_options: NotYet = None
    reasoning_effort: NotYet = None
    verbosity: NotYet = None
    # Let through:
    user: Unread = None
    metadata: Unread = None
    store: Unread = None
    service_tier: Unread = None
    parallel_tool_calls: Unread = None
    prediction: Unread = None
    prompt_cache_key: Unread = None
    prompt_cache_retention: Unread = None
    safety_identifier: Unread = None


decoder = msgspec.json.Decoder(ChatBody)
