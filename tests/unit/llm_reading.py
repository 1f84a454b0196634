"""Feeds answers to `Reply` in pieces, and puts together what comes out."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from hypothesis import strategies as st

from services.llm.reply import Reply, ReplyForm, Said
from services.llm.values import ToolCallDelta


@dataclass
class Heard:
    """A whole answer."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Name and arguments, by index."""
    ids: list[str] = field(default_factory=list)
    stop: str = ""
    over: bool = False

    def add(self, said: Said) -> None:
        self.text += said.text
        self.reasoning += said.reasoning
        for delta in said.tool_calls:
            self._call(delta)
        self.stop, self.over = said.stop, said.over

    def _call(self, delta: ToolCallDelta) -> None:
        if delta.index == len(self.calls):  # a new one: its first piece brings id and name
            assert delta.id
            assert delta.name
            self.calls.append((delta.name, ""))
            self.ids.append(delta.id)
        else:
            assert delta.index == len(self.calls) - 1
            assert not delta.id
            assert not delta.name
        name, arguments = self.calls[-1]
        self.calls[-1] = (name, arguments + delta.arguments_json)


def reply(form: ReplyForm, stops: tuple[str, ...] = (), max_sentences: int = 0) -> Reply:
    ids = count()
    return Reply(form, stops, max_sentences, lambda: f"call_{next(ids)}")


def heard(
    form: ReplyForm,
    pieces: Iterable[bytes | str],
    stops: tuple[str, ...] = (),
    max_sentences: int = 0,
) -> Heard:
    """What comes of an answer in these pieces."""
    whole, reader = Heard(), reply(form, stops, max_sentences)
    for piece in pieces:
        whole.add(reader.feed(piece.encode() if isinstance(piece, str) else piece))
        if whole.over:
            return whole
    whole.add(reader.flush())
    return whole


def cut(data: st.DataObject, text: str) -> list[bytes]:
    """The bytes of a text in pieces, cut anywhere."""
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20), label="cuts"))
    return [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
