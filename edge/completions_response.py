"""llm.v1 answers into OpenAI's completion dialect: one JSON body, or the events of a stream.

Pure: messages in, bytes out. One message is one event.
"""

import codecs
from typing import Literal

import msgspec

from cohabit.llm.v1 import llm_pb2 as pb
from edge.answering import Served
from edge.completions_body import Completion, CompletionChoice, CompletionLogprobs
from edge.openai_answer import DONE, Ends, logprob_of
from edge.timings import timings_of

_encode = msgspec.json.Encoder().encode


class Stream:
    """The events of one streamed answer. Feed it every message; ask for the end after the last."""

    def __init__(self, name: str, served: Served, *, include_usage: bool) -> None:
        self._served, self._include_usage = served, include_usage
        self._head = (
            b'data: {"id":%b,"object":"text_completion","created":%d,"model":%b,'
            b'"system_fingerprint":null,"choices":'
        ) % (_encode(name), served.created_s, _encode(served.model))
        self._tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._offsets: dict[int, _Offsets] = {}
        self._ends = Ends(served)

    def feed(self, message: pb.GenerateResponse) -> bytes:
        """The event for one message; empty when it says nothing for the client."""
        finished = message.HasField("finish")
        if not (message.text or message.logprobs or finished):
            return b""
        choice = b'[{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b}]' % (
            message.choice,
            _encode(message.text),
            self._logprobs(message),
            b'"%b"' % _word(message.finish).encode() if finished else b"null",
        )
        metrics = b""
        if finished:
            self._ends.add(message)
            if not self._include_usage:  # else it stands beside the usage, in the last event
                metrics = b',"metrics":' + _encode(timings_of(self._served, message.finish))
        return self._head + choice + metrics + self._tail

    def end(self) -> bytes:
        """The last events of an answer that finished: usage where it was asked for, and [DONE]."""
        if not self._include_usage:
            return DONE
        usage, metrics = _encode(self._ends.usage), _encode(self._ends.metrics)
        return self._head + b'[],"usage":%b,"metrics":%b}\n\n' % (usage, metrics) + DONE

    def _logprobs(self, message: pb.GenerateResponse) -> bytes:
        if not message.logprobs:
            return b"null"
        offsets = self._offsets.setdefault(message.choice, _Offsets())
        return _encode(_logprobs(list(message.logprobs), offsets))


class Collected:
    """One answer that is sent whole."""

    def __init__(self, name: str, served: Served) -> None:
        self._name, self._served = name, served
        self._texts: dict[int, list[str]] = {}
        self._tokens: dict[int, list[pb.TokenLogprob]] = {}
        self._ends = Ends(served)

    def feed(self, message: pb.GenerateResponse) -> None:
        """Take one message in."""
        self._texts.setdefault(message.choice, []).append(message.text)
        if message.logprobs:
            self._tokens.setdefault(message.choice, []).extend(message.logprobs)
        if message.HasField("finish"):
            self._ends.add(message)

    def body(self) -> bytes:
        """The JSON body. Call once every choice has finished."""
        completion = Completion(
            id=self._name,
            object="text_completion",
            created=self._served.created_s,
            model=self._served.model,
            choices=[self._choice(index) for index in sorted(self._texts)],
            usage=self._ends.usage,
            metrics=self._ends.metrics,
        )
        return _encode(completion)

    def _choice(self, index: int) -> CompletionChoice:
        tokens = self._tokens.get(index)
        return CompletionChoice(
            index=index,
            text="".join(self._texts[index]),
            finish_reason=_word(self._ends.of(index)),
            logprobs=_logprobs(tokens, _Offsets()) if tokens else None,
        )


def _word(finish: pb.Finish) -> Literal["stop", "length"]:
    # A bare prompt offers no tools: there are no other ends.
    return "length" if finish.reason == pb.FINISH_REASON_LENGTH else "stop"


class _Offsets:
    """Where tokens begin in the text that they make up, in characters."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._chars = 0

    def next(self, token: bytes) -> int:
        """Of this token; one that begins within a character has that character's offset."""
        began = self._chars
        self._chars += len(self._decoder.decode(token))
        return began


def _logprobs(tokens: list[pb.TokenLogprob], offsets: _Offsets) -> CompletionLogprobs:
    return CompletionLogprobs(
        tokens=[_shown(token.chosen.text) for token in tokens],
        token_logprobs=[logprob_of(token.chosen) for token in tokens],
        top_logprobs=[
            {_shown(c.text): logprob_of(c) for c in (*token.top, token.chosen)} for token in tokens
        ],
        text_offset=[offsets.next(token.chosen.text) for token in tokens],
    )


def _shown(text: bytes) -> str:
    """The token's text; its bytes, as OpenAI spells them, where it is no whole character."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in text)
