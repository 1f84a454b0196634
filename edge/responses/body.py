"""The body of POST /v1/responses as clients may write it: types and ranges, no meaning.

The same structs decode requests and describe them in /openapi.json. Items and tools are many kinds
of objects told apart by `type`: they stay raw here, so that a kind that is not known can be refused
by its name, and are decoded one by one in `items` and `request`.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

_Name = Annotated[str, Meta(min_length=1, max_length=256)]
_Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_NotYet = Annotated[
    Raw | UnsetType,
    Meta(description="Not supported yet; refused when it asks for something."),
]
_Unread = Annotated[Raw | UnsetType, Meta(description="Accepted and ignored.")]
JsonObject = Annotated[Raw, Meta(extra_json_schema={"type": ["object", "null"]})]

MOST_ITEMS = 16_384
MOST_PARTS = 1_024
MOST_TOOLS = 128
_MOST_INCLUDED = 16
_MOST_TOP_LOGPROBS = 20


def _one_of(*names: str) -> dict[str, Any]:
    return {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]}


class InputPart(msgspec.Struct, forbid_unknown_fields=True):
    """A piece of a message or of a tool's output; only text is supported yet."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: _NotYet = UNSET
    file_id: _NotYet = UNSET
    file_url: _NotYet = UNSET
    file_data: _NotYet = UNSET
    filename: _NotYet = UNSET
    detail: _NotYet = UNSET
    input_audio: _NotYet = UNSET
    annotations: _Unread = UNSET
    logprobs: _Unread = UNSET


_Content = str | Annotated[list[InputPart], Meta(max_length=MOST_PARTS)]


class InputMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A turn of the conversation: new, or an answer that is passed back."""

    role: Literal["user", "system", "developer", "assistant"]
    content: _Content
    type: Literal["message"] = "message"
    id: str | None = None
    status: _Unread = UNSET
    phase: _Unread = UNSET


class InputFunctionCall(msgspec.Struct, forbid_unknown_fields=True):
    """A call that the model made, passed back."""

    type: Literal["function_call"]
    call_id: _Name
    name: _Name
    arguments: str
    id: str | None = None
    status: _Unread = UNSET
    namespace: _Unread = UNSET
    caller: _Unread = UNSET
    created_by: _Unread = UNSET


class InputFunctionOutput(msgspec.Struct, forbid_unknown_fields=True):
    """What a function answered."""

    type: Literal["function_call_output"]
    call_id: _Name
    output: _Content
    id: str | None = None
    status: _Unread = UNSET
    name: _Unread = UNSET
    namespace: _Unread = UNSET
    caller: _Unread = UNSET
    created_by: _Unread = UNSET


class ReasoningPiece(msgspec.Struct, forbid_unknown_fields=True):
    """A piece of what the model thought."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


_Pieces = Annotated[list[ReasoningPiece], Meta(max_length=MOST_PARTS)]


class InputReasoning(msgspec.Struct, forbid_unknown_fields=True):
    """What the model thought, passed back. What is encrypted is not ours, and passed over."""

    type: Literal["reasoning"]
    summary: _Pieces | None = None
    content: _Pieces | None = None
    id: str | None = None
    encrypted_content: _Unread = UNSET
    status: _Unread = UNSET


INPUT_ITEMS = (InputMessage, InputFunctionCall, InputFunctionOutput, InputReasoning)


class ResponseTool(msgspec.Struct, forbid_unknown_fields=True):
    """A function the model may call."""

    type: Literal["function"]
    name: _Name
    description: str | None = None
    parameters: JsonObject | UnsetType = UNSET
    """JSON schema of the arguments."""
    strict: bool | None = None


class ToolWish(msgspec.Struct):
    """The tool that must be called: `{"type": "function", "name": …}`."""

    type: str
    name: str = ""


class TextFormat(msgspec.Struct, forbid_unknown_fields=True):
    """What the answer must look like."""

    type: Literal["text", "json_object", "json_schema"]
    name: _Name | UnsetType = UNSET
    schema: JsonObject | UnsetType = UNSET
    description: str | UnsetType | None = UNSET
    strict: bool | UnsetType | None = UNSET


class TextOptions(msgspec.Struct, forbid_unknown_fields=True):
    """How text is written."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Whether the model thinks first. All that it thought is told, whatever summary is asked."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: _Unread = UNSET


class StreamWishes(msgspec.Struct, forbid_unknown_fields=True):
    """How the stream is told."""

    include_obfuscation: _Unread = UNSET


_Item = Annotated[Raw, Meta(extra_json_schema=_one_of(*(kind.__name__ for kind in INPUT_ITEMS)))]
_Tool = Annotated[Raw, Meta(extra_json_schema=_one_of(ResponseTool.__name__))]
_Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]


class ResponsesBody(msgspec.Struct, forbid_unknown_fields=True):
    """A request for a response."""

    model: _Name
    input: str | Annotated[list[_Item], Meta(max_length=MOST_ITEMS)] | None = None
    instructions: str | None = None
    previous_response_id: Annotated[str, Meta(max_length=256)] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamWishes | None = None
    max_output_tokens: _Tokens | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=1e-5, le=1)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=_MOST_TOP_LOGPROBS)] | None = None
    include: Annotated[list[str], Meta(max_length=_MOST_INCLUDED)] | None = None
    tools: Annotated[list[_Tool], Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolWish | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    metadata: _Metadata | None = None
    user: str | None = None
    truncation: Literal["disabled", "auto"] | None = None
    # Beyond OpenAI's own:
    thinking: Literal["default", "enabled", "disabled"] | None = None
    source_lang_code: Annotated[str, Meta(max_length=64)] | None = None
    target_lang_code: Annotated[str, Meta(max_length=64)] | None = None
    # Refused when they ask for something:
    background: _NotYet = UNSET
    conversation: _NotYet = UNSET
    prompt: _NotYet = UNSET
    context_management: _NotYet = UNSET
    moderation: _NotYet = UNSET
    messages: _NotYet = UNSET
    decoding: _NotYet = UNSET
    fairness_key: _NotYet = UNSET
    allow_remote: _NotYet = UNSET
    # Let through:
    service_tier: _Unread = UNSET
    prompt_cache_key: _Unread = UNSET
    prompt_cache_retention: _Unread = UNSET
    prompt_cache_options: _Unread = UNSET
    safety_identifier: _Unread = UNSET
    max_tool_calls: _Unread = UNSET


decoder = msgspec.json.Decoder(ResponsesBody)
