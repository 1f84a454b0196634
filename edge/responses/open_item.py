"""The item that the model is writing: what it is so far, and the event of each piece. Pure."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from cohabit.llm.v1 import llm_pb2 as pb
from edge.responses.objects import (
    ItemStatus,
    OutputItem,
    OutputText,
    ReasoningText,
    ResponseFunctionCall,
    ResponseMessage,
    ResponseReasoning,
    TextLogprob,
    TopLogprob,
)

_encode = msgspec.json.Encoder().encode


class OpenItem:
    """What the three kinds share. `event` is the stem of the names of a kind's events."""

    event: ClassVar[str]
    _tail: ClassVar[bytes] = b"}\n\n"

    def __init__(self, name: str, index: int) -> None:
        self.name, self.index = name, index
        self._pieces: list[str] = []
        # Encoded once an item, because there is an event a token.
        kind = f"{self.event}.delta"
        fields = _encode({"type": kind, **self.place}).removesuffix(b"}")
        self._head = b"event: %b\ndata: %b" % (kind.encode(), fields)

    @property
    def place(self) -> dict[str, Any]:
        """The fields that say where it stands."""
        return {"item_id": self.name, "output_index": self.index}

    @property
    def _all(self) -> str:
        return "".join(self._pieces)

    def add(self, number: int, piece: str) -> bytes:
        """The event of one more piece."""
        self._pieces.append(piece)
        told = b',"sequence_number":%d,"delta":%b' % (number, _encode(piece))
        return self._head + told + self._tail

    def item(self, status: ItemStatus) -> OutputItem:
        """The item with all that came so far."""
        raise NotImplementedError

    def bare(self) -> OutputItem:
        """The item before anything came."""
        raise NotImplementedError

    def part(self) -> OutputText | ReasoningText | None:
        """Its one part, with all that came so far; None: its kind has none."""
        return None

    def whole(self) -> dict[str, Any]:
        """The fields of the event that closes it."""
        raise NotImplementedError


class Said(OpenItem):
    """A message."""

    event = "response.output_text"
    _tail = b',"logprobs":[]}\n\n'

    def __init__(self, name: str, index: int) -> None:
        super().__init__(name, index)
        self._logprobs: list[TextLogprob] = []

    @property
    def place(self) -> dict[str, Any]:
        """With the only part it has."""
        return {**super().place, "content_index": 0}

    def add_with(self, number: int, piece: str, told: Sequence[pb.TokenLogprob]) -> bytes:
        """As `add`, with the log-probabilities of the tokens behind the piece."""
        logprobs = [_logprob(token) for token in told]
        self._logprobs += logprobs
        event = self.add(number, piece).removesuffix(self._tail)
        return event + b',"logprobs":%b}\n\n' % _encode(logprobs)

    def item(self, status: ItemStatus) -> ResponseMessage:
        """The message."""
        return ResponseMessage(self.name, "assistant", status, [self.part()])

    def bare(self) -> ResponseMessage:
        """A message without a part."""
        return ResponseMessage(self.name, "assistant", "in_progress", [])

    def part(self) -> OutputText:
        """Its text."""
        return OutputText(self._all, logprobs=self._logprobs)

    def whole(self) -> dict[str, Any]:
        """Its text, again."""
        return {"text": self._all, "logprobs": self._logprobs}


class Thought(OpenItem):
    """What the model thinks."""

    event = "response.reasoning_text"

    @property
    def place(self) -> dict[str, Any]:
        """With the only part it has."""
        return {**super().place, "content_index": 0}

    def item(self, status: ItemStatus) -> ResponseReasoning:
        """The thought."""
        return ResponseReasoning(self.name, status, [self.part()])

    def bare(self) -> ResponseReasoning:
        """One without a part."""
        return ResponseReasoning(self.name, "in_progress", [])

    def part(self) -> ReasoningText:
        """Its text."""
        return ReasoningText(self._all)

    def whole(self) -> dict[str, Any]:
        """Its text, again."""
        return {"text": self._all}


class Called(OpenItem):
    """A call of a function."""

    event = "response.function_call_arguments"

    def __init__(self, name: str, index: int, first: pb.ToolCallDelta) -> None:
        super().__init__(name, index)
        self.call_index = first.index
        self._call_id, self._function = first.id, first.name

    def item(self, status: ItemStatus) -> ResponseFunctionCall:
        """The call."""
        return ResponseFunctionCall(self.name, self._call_id, self._function, self._all, status)

    def bare(self) -> ResponseFunctionCall:
        """One without arguments."""
        return ResponseFunctionCall(self.name, self._call_id, self._function, "", "in_progress")

    def whole(self) -> dict[str, Any]:
        """Its arguments, again, and its name."""
        return {"arguments": self._all, "name": self._function}


def _logprob(told: pb.TokenLogprob) -> TextLogprob:
    token, value, raw = _candidate(told.chosen)
    return TextLogprob(token, value, raw, [TopLogprob(*_candidate(other)) for other in told.top])


def _candidate(told: pb.TokenLogprob.Candidate) -> tuple[str, float, list[int]]:
    return told.text.decode(errors="replace"), told.logprob, list(told.text)
