"""The bodies of POST /v1/messages and of /v1/messages/count_tokens: types and ranges, no meaning.

The same structs decode requests and describe them in /openapi.json. As in OpenAI's dialect, what
changes no answer is let through unread, what would change it and is not built is refused when it
asks for something, and every other field is refused by name.

What holds JSON of the caller's own (schemas, arguments) stays bytes here: it is handed on as text.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from edge.openai_body import NotYet, Unread

MOST_TURNS = 16_384
MOST_BLOCKS = 1_024
MOST_STOPS = 64
MOST_TOOLS = 128
_Name = Annotated[str, Meta(min_length=1, max_length=256)]
_CallId = Annotated[str, Meta(min_length=1, max_length=256)]
_ToolName = Annotated[str, Meta(min_length=1, max_length=128)]
_OBJECT = Meta(description="A JSON object.", extra_json_schema={"type": "object"})
_JsonObject = Annotated[Raw, _OBJECT]
_Share = Annotated[float, Meta(ge=1e-5, le=1)]


class TextBlockParam(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    """Text."""

    text: str
    cache_control: Unread = UNSET
    citations: Unread = UNSET


class ImageBlockParam(msgspec.Struct, tag_field="type", tag="image"):
    """An image. Not supported yet; refused."""


class DocumentBlockParam(msgspec.Struct, tag_field="type", tag="document"):
    """A document. Not supported yet; refused."""


class ThinkingBlockParam(
    msgspec.Struct, tag_field="type", tag="thinking", forbid_unknown_fields=True
):
    """What the model thought in a turn before. The signature is not checked."""

    thinking: str
    signature: str = ""


class RedactedThinkingBlockParam(
    msgspec.Struct, tag_field="type", tag="redacted_thinking", forbid_unknown_fields=True
):
    """Thoughts that only another server could read; passed over."""

    data: Unread = UNSET


class ToolUseBlockParam(
    msgspec.Struct, tag_field="type", tag="tool_use", forbid_unknown_fields=True
):
    """A call the model made."""

    id: _CallId
    name: _ToolName
    input: _JsonObject
    cache_control: Unread = UNSET
    caller: Unread = UNSET


ResultBlockParam = TextBlockParam | ImageBlockParam | DocumentBlockParam


class ToolResultBlockParam(
    msgspec.Struct, tag_field="type", tag="tool_result", forbid_unknown_fields=True
):
    """What came of a call. An error is told to the model as one."""

    tool_use_id: _CallId
    content: str | Annotated[list[ResultBlockParam], Meta(max_length=MOST_BLOCKS)] | None = None
    is_error: bool | None = None
    cache_control: Unread = UNSET


BlockParam = (
    TextBlockParam
    | ImageBlockParam
    | DocumentBlockParam
    | ThinkingBlockParam
    | RedactedThinkingBlockParam
    | ToolUseBlockParam
    | ToolResultBlockParam
)


class MessageParam(msgspec.Struct, forbid_unknown_fields=True):
    """One turn. Several of the same role in a row are one."""

    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[BlockParam], Meta(max_length=MOST_BLOCKS)]


class ToolParam(msgspec.Struct):
    """A tool that the client runs. One that runs at Anthropic has another `type`; it is refused."""

    name: _ToolName | None = None
    type: str | None = None
    description: str | None = None
    input_schema: _JsonObject | UnsetType = UNSET
    strict: Unread = UNSET
    cache_control: Unread = UNSET
    eager_input_streaming: Unread = UNSET
    input_examples: Unread = UNSET
    defer_loading: NotYet = UNSET


class ToolChoiceAutoParam(msgspec.Struct, tag_field="type", tag="auto", forbid_unknown_fields=True):
    """The model decides."""

    disable_parallel_tool_use: bool | None = None


class ToolChoiceAnyParam(msgspec.Struct, tag_field="type", tag="any", forbid_unknown_fields=True):
    """At least one call."""

    disable_parallel_tool_use: bool | None = None


class ToolChoiceToolParam(msgspec.Struct, tag_field="type", tag="tool", forbid_unknown_fields=True):
    """A call of this tool."""

    name: _ToolName
    disable_parallel_tool_use: bool | None = None


class ToolChoiceNoneParam(msgspec.Struct, tag_field="type", tag="none", forbid_unknown_fields=True):
    """No call."""


ToolChoiceParam = (
    ToolChoiceAutoParam | ToolChoiceAnyParam | ToolChoiceToolParam | ToolChoiceNoneParam
)
Display = Literal["summarized", "omitted"]


class ThinkingEnabledParam(
    msgspec.Struct, tag_field="type", tag="enabled", forbid_unknown_fields=True
):
    """Think. Thoughts are bounded by `max_tokens` alone: the budget is no limit of its own here."""

    budget_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    display: Display | None = None


class ThinkingAdaptiveParam(
    msgspec.Struct, tag_field="type", tag="adaptive", forbid_unknown_fields=True
):
    """Think as much as the model likes."""

    display: Display | None = None


class ThinkingDisabledParam(
    msgspec.Struct, tag_field="type", tag="disabled", forbid_unknown_fields=True
):
    """Answer at once."""


ThinkingParam = ThinkingEnabledParam | ThinkingAdaptiveParam | ThinkingDisabledParam


class JsonOutputFormatParam(
    msgspec.Struct, tag_field="type", tag="json_schema", forbid_unknown_fields=True
):
    """The answer's text is JSON of this schema."""

    schema: _JsonObject


class OutputConfigParam(msgspec.Struct, forbid_unknown_fields=True):
    """What the answer looks like."""

    format: JsonOutputFormatParam | None = None
    effort: Unread = UNSET


class CountTokensBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A prompt: what both routes take."""

    model: _Name
    messages: Annotated[list[MessageParam], Meta(min_length=1, max_length=MOST_TURNS)]
    system: str | Annotated[list[TextBlockParam], Meta(max_length=MOST_BLOCKS)] | None = None
    tools: Annotated[list[ToolParam], Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: ToolChoiceParam | None = None
    thinking: ThinkingParam | None = None
    output_config: OutputConfigParam | None = None
    # Refused when they ask for something:
    context_management: NotYet = UNSET
    mcp_servers: NotYet = UNSET
    # Let through:
    cache_control: Unread = UNSET
    speed: Unread = UNSET
    user_profile_id: Unread = UNSET


class MessagesBody(CountTokensBody, kw_only=True, forbid_unknown_fields=True):
    """A prompt, and how to answer it."""

    max_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    stream: bool | None = None
    stop_sequences: Annotated[list[str], Meta(max_length=MOST_STOPS)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: _Share | None = None
    top_k: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    # Refused when they ask for something:
    container: NotYet = UNSET
    diagnostics: NotYet = UNSET
    inference_geo: NotYet = UNSET
    # Let through:
    metadata: Unread = UNSET
    service_tier: Unread = UNSET


messages_decoder = msgspec.json.Decoder(MessagesBody)
count_decoder = msgspec.json.Decoder(CountTokensBody)
