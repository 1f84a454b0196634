"""llm.v1 answers into OpenAI's chat dialect: one JSON body, or the events of a stream.

Pure: messages in, bytes out. In a stream everything that stays the same from event to event is
encoded once a choice; per event only what is new is.
"""

import msgspec

from cohabit.llm.v1 import llm_pb2 as pb
from edge.answering import Served
from edge.chat_logprobs import ChatTokenLogprob, ChoiceLogprobs, logprobs_of
from edge.chat_response import (
    AnswerMessage,
    ChatCompletion,
    ChatToolCall,
    ChatToolCallPiece,
    Choice,
    FunctionCall,
)
from edge.openai_answer import DONE, Ends, finish_word
from edge.timings import timings_of

_encode = msgspec.json.Encoder().encode
_REASONING, _CONTENT, _CALLS = b'"reasoning_content":', b'"content":', b'"tool_calls":'


class Stream:
    """The events of one streamed answer. Feed it every message; ask for the end after the last."""

    def __init__(self, name: str, served: Served, *, include_usage: bool, parallel: bool) -> None:
        self._served, self._parallel, self._include_usage = served, parallel, include_usage
        self._head = (
            b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,'
            b'"system_fingerprint":null,"choices":'
        ) % (_encode(name), served.created_s, _encode(served.model))
        self._tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._close = b'},"logprobs":null,"finish_reason":null}]' + self._tail
        self._opens: dict[int, bytes] = {}
        self._ends = Ends(served)

    def feed(self, message: pb.GenerateResponse) -> bytes:
        """The events for one message, together; empty when it says nothing for the client."""
        began = self._opens.get(message.choice)
        open_ = began or self._head + b'[{"index":%d,"delta":{' % message.choice
        events = self._said(message, open_)
        if message.HasField("finish"):
            self._ends.add(message)
            events += open_ + self._finish(message.finish)
        if events and began is None:
            self._opens[message.choice] = open_
            events = open_ + _role(message) + self._close + events
        return events

    def end(self) -> bytes:
        """The last events of an answer that finished: usage where it was asked for, and [DONE]."""
        if not self._include_usage:
            return DONE
        usage, metrics = _encode(self._ends.usage), _encode(self._ends.metrics)
        return self._head + b'[],"usage":%b,"metrics":%b}\n\n' % (usage, metrics) + DONE

    def _said(self, message: pb.GenerateResponse, open_: bytes) -> bytes:
        # Once a token and stream: what is looked at twice, or looped over empty, shows.
        events, close = b"", self._close
        if logprobs := message.logprobs:  # they stand in the first event of their message
            close = self._close_with(logprobs_of(logprobs))
        if reasoning := message.reasoning:
            events, close = open_ + _REASONING + _encode(reasoning) + close, self._close
        if text := message.text:
            events, close = events + open_ + _CONTENT + _encode(text) + close, self._close
        if message.tool_calls and (calls := self._pieces(message)):
            events, close = events + open_ + _CALLS + _encode(calls) + close, self._close
        if logprobs and not events:  # of tokens whose text is not certain yet
            events = open_ + _CONTENT + b'""' + close
        return events

    def _pieces(self, message: pb.GenerateResponse) -> list[ChatToolCallPiece]:
        return [_piece(call) for call in message.tool_calls if self._parallel or call.index == 0]

    def _close_with(self, tokens: list[ChatTokenLogprob]) -> bytes:
        logprobs = _encode(ChoiceLogprobs(tokens))
        return b'},"logprobs":%b,"finish_reason":null}]' % logprobs + self._tail

    def _finish(self, finish: pb.Finish) -> bytes:
        word = finish_word(finish).encode()
        metrics = b""
        if not self._include_usage:  # else it stands beside the usage, in the last event
            metrics = b',"metrics":' + _encode(timings_of(self._served, finish))
        return b'},"logprobs":null,"finish_reason":"%b"}]%b' % (word, metrics) + self._tail


def _role(message: pb.GenerateResponse) -> bytes:
    # Null where other things come first: it may be that no text follows.
    silent = not message.text and (message.tool_calls or message.reasoning)
    return b'"role":"assistant","content":%b,"refusal":null' % (b"null" if silent else b'""')


def _piece(call: pb.ToolCallDelta) -> ChatToolCallPiece:
    piece = ChatToolCallPiece(call.index, FunctionCall(call.arguments_json))
    if call.id:
        piece.id, piece.type, piece.function.name = call.id, "function", call.name
    return piece


class Collected:
    """One answer that is sent whole."""

    def __init__(self, name: str, served: Served, *, parallel: bool) -> None:
        self._name, self._served, self._parallel = name, served, parallel
        self._choices: dict[int, _Choice] = {}
        self._ends = Ends(served)

    def feed(self, message: pb.GenerateResponse) -> None:
        """Take one message in."""
        choice = self._choices.get(message.choice)
        if choice is None:
            choice = self._choices[message.choice] = _Choice()
        choice.feed(message, parallel=self._parallel)
        if message.HasField("finish"):
            self._ends.add(message)

    def body(self) -> bytes:
        """The JSON body. Call once every choice has finished."""
        completion = ChatCompletion(
            id=self._name,
            object="chat.completion",
            created=self._served.created_s,
            model=self._served.model,
            choices=[
                choice.whole(index, self._ends.of(index))
                for index, choice in sorted(self._choices.items())
            ],
            usage=self._ends.usage,
            metrics=self._ends.metrics,
        )
        return _encode(completion)


class _Choice:
    """What one choice has said so far."""

    __slots__ = ("_calls", "_logprobs", "_reasoning", "_text")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._logprobs: list[ChatTokenLogprob] = []
        self._calls: dict[int, list[pb.ToolCallDelta]] = {}

    def feed(self, message: pb.GenerateResponse, *, parallel: bool) -> None:
        if message.text:
            self._text.append(message.text)
        if message.reasoning:
            self._reasoning.append(message.reasoning)
        self._logprobs += logprobs_of(message.logprobs)
        for call in message.tool_calls:
            if parallel or call.index == 0:
                self._calls.setdefault(call.index, []).append(call)

    def whole(self, index: int, finish: pb.Finish) -> Choice:
        text = "".join(self._text)
        message = AnswerMessage("assistant", text or (None if self._calls else ""))
        if self._reasoning:
            message.reasoning_content = "".join(self._reasoning)
        if self._calls:
            message.tool_calls = [_call(pieces) for _, pieces in sorted(self._calls.items())]
        logprobs = ChoiceLogprobs(self._logprobs) if self._logprobs else None
        return Choice(index, message, finish_word(finish), logprobs)


def _call(pieces: list[pb.ToolCallDelta]) -> ChatToolCall:
    arguments = "".join(piece.arguments_json for piece in pieces)
    return ChatToolCall(pieces[0].id, FunctionCall(arguments, pieces[0].name))
