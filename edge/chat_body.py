"""The body of POST /v1/chat/completions as clients may write it: types and ranges, no meaning.

What it shares with completions, and what the groups of fields are, says `openai_body`.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from edge.openai_body import MOST_TOP_LOGPROBS, Name, NotYet, SampledBody, Tokens, Unread

MOST_MESSAGES = 16_384
MOST_PARTS = 1_024
MOST_TOOLS = 128
MOST_CALLS = 128
_MOST_MODALITIES = 8
_LANGUAGE = Meta(max_length=64)

ROLES = ("system", "developer", "user", "assistant", "tool")
Schema = Annotated[Raw | UnsetType, Meta(description="A JSON schema.")]


class ContentPart(msgspec.Struct, forbid_unknown_fields=True):
    """A piece of a message. A `text` with a `target_lang_code` is one to translate."""

    type: str
    text: str | None = None
    source_lang_code: Annotated[str, _LANGUAGE] | None = None
    target_lang_code: Annotated[str, _LANGUAGE] | None = None
    image_url: NotYet = UNSET
    input_audio: NotYet = UNSET
    file: NotYet = UNSET
    refusal: str | None = None
    cache_control: Unread = UNSET


class CalledFunction(msgspec.Struct, forbid_unknown_fields=True):
    """What the assistant called."""

    name: Name
    arguments: Annotated[str, Meta(description="JSON text of an object; empty: no arguments.")]


class AssistantToolCall(msgspec.Struct, forbid_unknown_fields=True):
    """A call that the assistant made in an earlier turn."""

    id: Name
    function: CalledFunction
    type: Literal["function"] = "function"
    index: Unread = UNSET


class ChatMessage(msgspec.Struct, forbid_unknown_fields=True):
    """One turn of the conversation."""

    role: Annotated[str, Meta(extra_json_schema={"enum": list(ROLES)})]
    content: str | Annotated[list[ContentPart], Meta(max_length=MOST_PARTS)] | None = None
    name: Annotated[str, Meta(max_length=256)] | None = None
    reasoning_content: str | None = None
    tool_calls: Annotated[list[AssistantToolCall], Meta(max_length=MOST_CALLS)] | None = None
    tool_call_id: Name | None = None
    function_call: NotYet = UNSET
    audio: NotYet = UNSET
    refusal: Unread = UNSET
    annotations: Unread = UNSET


class Function(msgspec.Struct, forbid_unknown_fields=True):
    """A function that the model may call."""

    name: Name
    description: str | None = None
    parameters: Schema = UNSET
    strict: (
        Annotated[bool, Meta(description="Accepted: what can be enforced of a schema, is.")] | None
    ) = None


class ChatTool(msgspec.Struct, forbid_unknown_fields=True):
    """Something that the model may call; only functions are supported."""

    type: Annotated[str, Meta(description="`function`.")]
    function: Function | None = None
    custom: NotYet = UNSET


class ChosenFunction(msgspec.Struct, forbid_unknown_fields=True):
    """The one to call."""

    name: Name


class NamedToolChoice(msgspec.Struct, forbid_unknown_fields=True):
    """This tool and no other; `type` is `function`, the others are not supported."""

    type: str
    function: ChosenFunction | None = None
    allowed_tools: NotYet = UNSET
    custom: NotYet = UNSET


class ChatTextFormat(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """Any text."""


class JsonObjectFormat(
    msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="json_object"
):
    """Some JSON object."""


class JsonSchema(msgspec.Struct, forbid_unknown_fields=True):
    """A schema, which is enforced whether `strict` or not."""

    name: Name
    schema: Schema = UNSET
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(
    msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="json_schema"
):
    """JSON that a schema describes."""

    json_schema: JsonSchema


class GrammarFormat(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="grammar"):
    """Beyond OpenAI's own: what a GBNF grammar describes."""

    grammar: Annotated[str, Meta(min_length=1)]


class RegexFormat(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="regex"):
    """Beyond OpenAI's own: what a regular expression matches as a whole."""

    regex: Annotated[str, Meta(min_length=1)]


ResponseFormat = ChatTextFormat | JsonObjectFormat | JsonSchemaFormat | GrammarFormat | RegexFormat


class TemplateOptions(msgspec.Struct, forbid_unknown_fields=True):
    """What the chat template is told."""

    enable_thinking: bool | None = None


class ChatBody(SampledBody, forbid_unknown_fields=True, kw_only=True):
    """A chat completion request."""

    model: Name
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MOST_MESSAGES)]
    max_completion_tokens: Tokens | None = None
    tools: Annotated[list[ChatTool], Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedToolChoice | None = None
    parallel_tool_calls: (
        Annotated[bool, Meta(description="false: the first call is answered, and no other.")] | None
    ) = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    reasoning_effort: (
        Annotated[
            Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"],
            Meta(description="Whether the model may think; `none` and `minimal`: it may not."),
        ]
        | None
    ) = None
    # Beyond OpenAI's own:
    thinking: Literal["default", "enabled", "disabled"] | None = None
    chat_template_kwargs: TemplateOptions | None = None
    continue_final_message: (
        Annotated[bool, Meta(description="Continue the assistant's last message.")] | None
    ) = None
    add_generation_prompt: (
        Annotated[bool, Meta(description="The opposite of `continue_final_message`.")] | None
    ) = None
    # Refused when they ask for something:
    modalities: Annotated[list[str], Meta(max_length=_MOST_MODALITIES)] | None = None
    functions: NotYet = UNSET
    function_call: NotYet = UNSET
    audio: NotYet = UNSET
    web_search_options: NotYet = UNSET
    moderation: NotYet = UNSET
    verbosity: NotYet = UNSET
    # Let through:
    metadata: Unread = UNSET
    store: Unread = UNSET
    prediction: Unread = UNSET
    prompt_cache_key: Unread = UNSET
    prompt_cache_options: Unread = UNSET
    prompt_cache_retention: Unread = UNSET
    safety_identifier: Unread = UNSET


decoder = msgspec.json.Decoder(ChatBody)
