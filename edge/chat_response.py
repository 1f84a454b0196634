"""llm.v1 answers into OpenAI's chat dialect: one JSON body, or the events of a stream.

Pure: messages in, bytes out. In a stream everything that stays the same from event to event is
encoded once a request; per event only the text is.
"""

from typing import Literal

import msgspec

from cohabit.llm.v1 import llm_pb2 as pb

FinishWord = Literal["stop", "length", "tool_calls"]

_FINISH: dict[int, FinishWord] = {
    pb.FINISH_REASON_STOP: "stop",
    pb.FINISH_REASON_LENGTH: "length",
    pb.FINISH_REASON_TOOL_CALLS: "tool_calls",
}
DONE = b"data: [DONE]\n\n"

_encode = msgspec.json.Encoder().encode


class PromptDetails(msgspec.Struct):
    """Of the prompt: what the prefix cache had."""

    cached_tokens: int


class CompletionDetails(msgspec.Struct):
    """Of the completion: what was thought rather than said."""

    reasoning_tokens: int


class Usage(msgspec.Struct):
    """Tokens counted."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class AnswerMessage(msgspec.Struct):
    """What the model said."""

    role: Literal["assistant"] | msgspec.UnsetType = msgspec.UNSET
    content: str | msgspec.UnsetType | None = msgspec.UNSET
    refusal: msgspec.UnsetType | None = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET


class Choice(msgspec.Struct):
    """An answer."""

    index: int
    message: AnswerMessage
    finish_reason: FinishWord
    logprobs: None = None


class ChatCompletion(msgspec.Struct):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    system_fingerprint: None = None


class ChunkChoice(msgspec.Struct):
    """A piece of an answer."""

    index: int
    delta: AnswerMessage
    finish_reason: FinishWord | None
    logprobs: None = None


class ChatCompletionChunk(msgspec.Struct):
    """One event of a stream. `usage` is there only when it was asked for."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    system_fingerprint: None = None


def usage_of(finish: pb.Finish) -> Usage:
    """The usage that a finished answer reports."""
    told = finish.usage
    return Usage(
        prompt_tokens=told.prompt_tokens,
        completion_tokens=told.completion_tokens,
        total_tokens=told.prompt_tokens + told.completion_tokens,
        prompt_tokens_details=PromptDetails(told.cached_prompt_tokens),
        completion_tokens_details=CompletionDetails(told.reasoning_tokens),
    )


def finish_word(finish: pb.Finish) -> FinishWord:
    """Why the answer ended, in OpenAI's word."""
    return _FINISH.get(finish.reason, "stop")


class Stream:
    """The events of one streamed answer. Feed it every message; ask for the end after the last."""

    def __init__(self, name: str, created: int, model: str, *, include_usage: bool) -> None:
        self._head = (
            b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,'
            b'"system_fingerprint":null,"choices":'
        ) % (_encode(name), created, _encode(model))
        self._open = self._head + b'[{"index":0,"delta":{'
        usage = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._close = b'},"logprobs":null,"finish_reason":null}]' + usage
        self._finish_close = b'},"logprobs":null,"finish_reason":"%b"}]' + usage
        self._include_usage = include_usage
        self._began = False
        self.finish: pb.Finish | None = None

    def feed(self, message: pb.GenerateResponse) -> bytes:
        """The events for one message, together; empty when it says nothing for the client."""
        events = b""
        if message.reasoning:
            events += self._open + b'"reasoning_content":' + _encode(message.reasoning)
            events += self._close
        if message.text:
            events += self._open + b'"content":' + _encode(message.text) + self._close
        if message.HasField("finish"):
            self.finish = message.finish
            word = finish_word(message.finish).encode()
            events += self._open + self._finish_close % word
        if events and not self._began:
            self._began = True
            role = b'"role":"assistant","content":"","refusal":null'
            events = self._open + role + self._close + events
        return events

    def end(self) -> bytes:
        """The last events of an answer that finished: usage where it was asked for, and [DONE]."""
        if not self._include_usage or self.finish is None:
            return DONE
        usage = _encode(usage_of(self.finish))
        return self._head + b'[],"usage":' + usage + b"}\n\n" + DONE


class Collected:
    """One answer that is sent whole."""

    def __init__(self, name: str, created: int, model: str) -> None:
        self._name, self._created, self._model = name, created, model
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self.finish: pb.Finish | None = None

    def feed(self, message: pb.GenerateResponse) -> None:
        """Take one message in."""
        if message.text:
            self._text.append(message.text)
        if message.reasoning:
            self._reasoning.append(message.reasoning)
        if message.HasField("finish"):
            self.finish = message.finish

    def body(self) -> bytes:
        """The JSON body. Call once `finish` is set."""
        assert self.finish is not None  # noqa: S101 - the caller's duty
        message = AnswerMessage(role="assistant", content="".join(self._text), refusal=None)
        if self._reasoning:
            message.reasoning_content = "".join(self._reasoning)
        choice = Choice(0, message, finish_word(self.finish))
        usage = usage_of(self.finish)
        completion = ChatCompletion(
            self._name, "chat.completion", self._created, self._model, [choice], usage
        )
        return _encode(completion)
