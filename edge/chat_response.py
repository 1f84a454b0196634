"""The answers of OpenAI's chat dialect as clients read them: shapes alone.

What is sent whole is encoded from these; what is streamed is written by hand (`chat_writers`), and
held against them by its tests.
"""

from typing import Literal

import msgspec

from edge.chat_logprobs import ChoiceLogprobs
from edge.openai_answer import FinishWord, Usage
from edge.timings import Timings


class FunctionCall(msgspec.Struct):
    """What is called; in a stream `arguments` comes in pieces, `name` with the first."""

    arguments: str
    name: str | msgspec.UnsetType = msgspec.UNSET


class ChatToolCall(msgspec.Struct):
    """A call of a tool."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class ChatToolCallPiece(msgspec.Struct):
    """A piece of the call with this index; `id` and `type` stand in its first."""

    index: int
    function: FunctionCall
    id: str | msgspec.UnsetType = msgspec.UNSET
    type: Literal["function"] | msgspec.UnsetType = msgspec.UNSET


class AnswerMessage(msgspec.Struct):
    """What the model said; `content` is null when all it did was call tools."""

    role: Literal["assistant"]
    content: str | None
    refusal: None = None
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[ChatToolCall] | msgspec.UnsetType = msgspec.UNSET


class Delta(msgspec.Struct):
    """What it said since the last piece; `role` stands in a choice's first."""

    role: Literal["assistant"] | msgspec.UnsetType = msgspec.UNSET
    content: str | msgspec.UnsetType | None = msgspec.UNSET
    refusal: msgspec.UnsetType | None = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[ChatToolCallPiece] | msgspec.UnsetType = msgspec.UNSET


class Choice(msgspec.Struct):
    """An answer."""

    index: int
    message: AnswerMessage
    finish_reason: FinishWord
    logprobs: ChoiceLogprobs | None = None


class ChatCompletion(msgspec.Struct):
    """A whole answer. `metrics` says where its time went, and is not OpenAI's own."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    metrics: Timings
    system_fingerprint: None = None


class ChunkChoice(msgspec.Struct):
    """A piece of an answer."""

    index: int
    delta: Delta
    finish_reason: FinishWord | None
    logprobs: ChoiceLogprobs | None = None


class ChatCompletionChunk(msgspec.Struct):
    """One event of a stream.

    `usage` is there only when it was asked for, and then `metrics` stands beside it in the last
    event; without, `metrics` stands where a choice ends.
    """

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    system_fingerprint: None = None
    metrics: Timings | msgspec.UnsetType = msgspec.UNSET
