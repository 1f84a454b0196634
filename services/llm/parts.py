"""Text a model writes → its parts: what it says, what it thinks, which tools it calls.

    saying ──opening of a thought──► thinking ──closing──► saying
       └────opening of a call──────► calling  ──frame over──► saying

Pure, and the same however the text is cut. Marks never come out, not even in part; what may be the
beginning of one is held back until that is decided. Space before a thought, behind one and between
calls is layout, not text. Stop strings and bytes stay out (`reply.py`).
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from services.llm.reasoning import ThinkMarks
from services.llm.text import StopScanner
from services.llm.tools.calls import Frame
from services.llm.tools.syntax import Syntax
from services.llm.values import ToolCallDelta


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """What an answer may hold besides text; the plain form holds nothing else."""

    think: ThinkMarks | None = None
    thinking: bool = False
    """The prompt has opened a thought already."""
    syntax: Syntax | None = None
    """How calls are written; None: nothing is a call."""
    tools: frozenset[str] = frozenset()
    """Names on offer; anything else is no call."""
    enforced: bool = False
    """A grammar sees to it that calls are well-formed."""
    single: bool = False
    """The answer ends behind its first call."""
    visible: frozenset[str] = frozenset()
    """Names of control tokens that must reach the reader as text, because they are marks."""


class Text(NamedTuple):
    """Said."""

    text: str


class Thought(NamedTuple):
    """Thought."""

    text: str


Part = Text | Thought | ToolCallDelta


class _Gap(Enum):
    """Where space is that may be layout."""

    START = "start"
    THOUGHT = "thought"
    CALL = "call"


class Parts:
    """Divides one answer. `new_id` makes the ids of calls."""

    def __init__(self, form: ReplyForm, new_id: Callable[[], str]) -> None:
        self._form, self._new_id = form, new_id
        self._openings = form.syntax.openings if form.syntax else ()
        thought = (form.think.opening, form.think.closing) if form.think else ()
        marks = (*self._openings, *thought)
        stray = tuple(name for name in form.visible if not any(name in mark for mark in marks))
        self._outside = StopScanner((*marks, *stray))
        self._inside = StopScanner((*thought[1:], *stray))
        self.thinking = form.thinking
        """What comes next is a thought, as far as is known."""
        self.calls = 0
        """How many have begun."""
        self.called_enough = False
        """It is whole with the call that it has."""
        self._frame: Frame | None = None
        bare = form.syntax is not None and form.syntax.bare
        self._gap: _Gap | None = _Gap.START if form.think or bare else None
        self._space: list[str] = []
        self._is_lead = True

    def feed(self, text: str) -> Iterator[Part]:
        """The parts that the next piece makes certain, in order."""
        while text:
            if self._frame is not None:
                text = yield from self._calling(self._frame, text)
            elif self.thinking:
                text = yield from self._thinking(text)
            else:
                text = yield from self._saying(text)

    def flush(self) -> Iterator[Part]:
        """The answer ended: what was held back."""
        if self._frame is not None:
            self._frame.flush()
            yield from self._left_over(self._frame)
        if self.thinking:
            yield from self._thought(self._inside.flush())
        elif held := self._outside.flush():
            yield from self._text(held)
        if self._gap is _Gap.START and not self.thinking and self._space:
            yield Text("".join(self._space))

    def _saying(self, text: str) -> Generator[Part, None, str]:
        before, mark, rest = self._outside.split(text)
        if self._opens_bare(before):
            # Whatever the scanner holds or has found comes behind the brace: read it as the call.
            return self._begin_frame("", before + (mark + rest or self._outside.flush()))
        yield from self._text(before)
        if mark in self._openings:
            return self._begin_frame(mark, rest)
        if self._form.think and mark in {self._form.think.opening, self._form.think.closing}:
            # A closing without an opening is a slip of the model.
            self._to_thinking(mark == self._form.think.opening)
        return rest

    def _opens_bare(self, text: str) -> bool:
        bare = self._form.syntax is not None and self._form.syntax.bare
        return bare and self._gap is not None and text.lstrip().startswith("{")

    def _text(self, text: str) -> Iterator[Part]:
        if self._gap is not None:
            said = text.lstrip()
            self._space.append(text[: len(text) - len(said)])
            if not said:
                return
            if self._gap is not _Gap.THOUGHT:
                said = "".join(self._space) + said
            self._gap, text = None, said
            self._space.clear()
        if text:
            yield Text(text)

    def _thinking(self, text: str) -> Generator[Part, None, str]:
        before, mark, rest = self._inside.split(text)
        yield from self._thought(before)
        if self._form.think and mark == self._form.think.closing:
            self._to_thinking(False)
        return rest

    def _thought(self, text: str) -> Iterator[Part]:
        """Space around a thought is layout, too."""
        if self._is_lead:
            text = text.lstrip()
        thought = text.rstrip()
        if thought:
            yield Thought("".join(self._space) + thought)
            self._space.clear()
            self._is_lead = False
        self._space.append(text[len(thought) :])

    def _to_thinking(self, thinking: bool) -> None:
        self.thinking, self._is_lead = thinking, True
        self._gap = _Gap.THOUGHT
        self._space.clear()

    def _begin_frame(self, mark: str, rest: str) -> str:
        syntax = self._form.syntax
        assert syntax is not None  # noqa: S101  only a syntax has openings
        self._frame = Frame(
            syntax,
            self._form.tools,
            self._begin_call,
            opening="".join(self._space) + mark,
            eager=self._form.enforced,
            single=self._form.single,
        )
        self._space.clear()
        return rest

    def _begin_call(self, name: str) -> ToolCallDelta:
        self.calls += 1
        return ToolCallDelta(self.calls - 1, id=self._new_id(), name=name)

    def _calling(self, frame: Frame, text: str) -> Generator[Part, None, str]:
        yield from frame.feed(text)
        self.called_enough = frame.enough
        if self.called_enough or not frame.over:
            return ""
        yield from self._left_over(frame)
        return frame.rest

    def _left_over(self, frame: Frame) -> Iterator[Part]:
        self._frame, text = None, frame.text
        for name in self._form.visible:
            text = text.replace(name, "")
        self._gap = None if text else _Gap.CALL
        if text:
            yield Text(text)
