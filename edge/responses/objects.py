"""What is answered about responses: the object itself, its items, and the answers around it."""

from typing import Any, Literal

import msgspec

from edge.responses.body import JsonObject, ReasoningOptions, TextFormat, TextOptions
from edge.timings import Timings

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]


class TopLogprob(msgspec.Struct):
    """A token that could have been."""

    token: str
    logprob: float
    bytes: list[int]


class TextLogprob(msgspec.Struct):
    """How likely a token was."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class OutputText(msgspec.Struct, tag_field="type", tag="output_text"):
    """Text of the model."""

    text: str
    annotations: list[Any] = []
    logprobs: list[TextLogprob] = []


class MessageText(msgspec.Struct, tag_field="type", tag="input_text"):
    """Text that was sent."""

    text: str


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    """What the model thought, word for word."""

    text: str


class ResponseMessage(msgspec.Struct, tag_field="type", tag="message"):
    """What was said; by the model, where `role` is `assistant`."""

    id: str
    role: Literal["user", "system", "developer", "assistant"]
    status: ItemStatus
    content: list[OutputText | MessageText]


class ResponseReasoning(msgspec.Struct, tag_field="type", tag="reasoning"):
    """What the model thought before it said something."""

    id: str
    status: ItemStatus
    content: list[ReasoningText]
    summary: list[Any] = []
    encrypted_content: None = None


class ResponseFunctionCall(msgspec.Struct, tag_field="type", tag="function_call"):
    """A call of a function, for the client to make."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


class ResponseFunctionOutput(msgspec.Struct, tag_field="type", tag="function_call_output"):
    """What a function answered."""

    id: str
    call_id: str
    output: str
    status: ItemStatus = "completed"


OutputItem = ResponseMessage | ResponseReasoning | ResponseFunctionCall
ListedItem = OutputItem | ResponseFunctionOutput


class ResponseErrorDetail(msgspec.Struct):
    """Why a response failed."""

    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str


class IncompleteDetails(msgspec.Struct):
    """Why a response is not whole."""

    reason: Literal["max_output_tokens"]


class InputTokensDetails(msgspec.Struct):
    """Of the prompt: what the prefix cache had. Nobody pays for what is written there."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct):
    """Of the answer: what was thought rather than said."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct):
    """Tokens counted."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ToolEcho(msgspec.Struct):
    """A tool that was on offer."""

    type: Literal["function"]
    name: str
    description: str | None
    parameters: JsonObject
    strict: bool | None


class ToolChoiceEcho(msgspec.Struct):
    """The function that had to be called."""

    type: Literal["function"]
    name: str


class ResponseObject(msgspec.Struct, kw_only=True):
    """A response: what was asked, how far it came, and what the model gave."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    """Unix time."""
    status: ResponseStatus = "in_progress"
    completed_at: int | None = None
    error: ResponseErrorDetail | None = None
    incomplete_details: IncompleteDetails | None = None
    model: str
    output: list[OutputItem] = []
    usage: ResponseUsage | None = None
    previous_response_id: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int = 0
    tools: list[ToolEcho] = []
    tool_choice: Literal["none", "auto", "required"] | ToolChoiceEcho = "auto"
    parallel_tool_calls: bool = True
    text: TextOptions = msgspec.field(
        default_factory=lambda: TextOptions(format=TextFormat("text"))
    )
    reasoning: ReasoningOptions = msgspec.field(default_factory=ReasoningOptions)
    metadata: dict[str, str] = {}
    user: str | None = None
    store: bool = True
    background: Literal[False] = False
    truncation: Literal["disabled"] = "disabled"
    metrics: Timings | None = None
    """Where the time went; an extension, once the answer is done."""


class ResponseEvent(msgspec.Struct):
    """One event of a stream; its other fields are those of its type, as OpenAI has them."""

    type: str
    sequence_number: int
    """From 0, without a gap."""


class ResponseDeleted(msgspec.Struct):
    """A response that is kept no longer."""

    id: str
    object: Literal["response.deleted"] = "response.deleted"
    deleted: Literal[True] = True


class ResponseItemList(msgspec.Struct):
    """Items that went into a response: of the conversation before it, and its own."""

    data: list[ListedItem]
    first_id: str
    last_id: str
    has_more: bool
    object: Literal["list"] = "list"
