"""llm.v1 answers into the bodies of the legacy text routes. Pure: messages in, bytes out."""

import msgspec

from cohabit.llm.v1 import llm_pb2 as pb
from edge.legacy_body import Generated, Summary

_encode = msgspec.json.Encoder().encode


class GeneratedTexts:
    """The continuations of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._said: dict[int, list[str]] = {}
        self._thought: dict[int, list[str]] = {}
        self._finishes: dict[int, pb.Finish] = {}

    def feed(self, message: pb.GenerateResponse) -> None:
        """Take one message in."""
        if message.text:
            self._said.setdefault(message.choice, []).append(message.text)
        if message.reasoning:
            self._thought.setdefault(message.choice, []).append(message.reasoning)
        if message.HasField("finish"):
            self._finishes[message.choice] = message.finish

    def body(self) -> bytes:
        """The JSON body. Call once every choice has finished."""
        return _encode([self._one(choice) for choice in sorted(self._finishes)])

    def _one(self, choice: int) -> Generated:
        return Generated(
            self._text + "".join(self._said.get(choice, ())),
            _stop_reason(self._finishes[choice]),
            "".join(self._thought.get(choice, ())) or None,
        )


def _stop_reason(finish: pb.Finish) -> str:
    if finish.reason == pb.FINISH_REASON_LENGTH:
        return "max_length"
    return finish.stop or "stop"


class SummaryText:
    """A summary of at most `most_chars`, which ends with a whole word."""

    def __init__(self, most_chars: int) -> None:
        self._most_chars = most_chars
        self._said: list[str] = []

    def feed(self, message: pb.GenerateResponse) -> None:
        """Take one message in."""
        self._said.append(message.text)

    def body(self) -> bytes:
        """The JSON body."""
        return _encode(Summary(_cut("".join(self._said).strip(), self._most_chars)))


def _cut(text: str, most_chars: int) -> str:
    if len(text) <= most_chars:
        return text
    whole, _, _ = text[: most_chars + 1].rpartition(" ")
    return whole.rstrip() or text[:most_chars]
