"""What a model writes, told apart: what it says, what it thinks, which tools it calls.

Pure: the bytes of tokens in, pieces of an answer out, the same however the bytes are cut. Which
forms there are is decided by the prompt that the answer follows (`forms.py`); tokens and limits on
them stay out. Stop strings and the limit on sentences look at what is said only.
"""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from services.llm.parts import Part, Parts, ReplyForm, Text, Thought
from services.llm.sentences import SentenceLimit
from services.llm.text import StopScanner, Utf8Stream
from services.llm.values import ToolCallDelta

__all__ = ["Reply", "ReplyForm", "Said", "new_call_id"]


def new_call_id() -> str:
    """Unique, in the shape that clients know."""
    return f"call_{secrets.token_hex(12)}"


@dataclass(frozen=True, slots=True)
class Said:
    """What became certain."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    stop: str = ""
    """The stop string that ended the answer; empty: none did."""
    over: bool = False
    """The answer ends here, by a stop string or after its last sentence."""


class Reply:
    """Reads one answer. Behind its end nothing is read any more."""

    def __init__(
        self,
        form: ReplyForm,
        stops: tuple[str, ...],
        max_sentences: int = 0,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self._utf8, self._stops = Utf8Stream(), StopScanner(stops)
        self._parts = Parts(form, new_id)
        self._sentences = SentenceLimit(max_sentences) if max_sentences else None
        self._over = False

    def feed(self, data: bytes) -> Said:
        """What the bytes of the next token make certain."""
        text = self._utf8.feed(data)
        return self._said(self._parts.feed(text)) if text else Said()

    def flush(self) -> Said:
        """The answer ended by itself: what was held back."""
        said = self._said(self._parts.flush())
        if self._over:
            return said
        last, over = self._limited(self._stops.flush())
        if self._sentences is not None and not over:
            last += self._sentences.flush()
        return Said(said.text + last, said.reasoning, said.tool_calls, over=over)

    @property
    def thinking(self) -> bool:
        """What comes next is reasoning, as far as is known."""
        return self._parts.thinking

    @property
    def called(self) -> bool:
        """It holds a tool call."""
        return self._parts.calls > 0

    def _said(self, parts: Iterable[Part]) -> Said:
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[ToolCallDelta] = []
        stop = ""
        for part in () if self._over else parts:
            if isinstance(part, Thought):
                thoughts.append(part.text)
            elif isinstance(part, ToolCallDelta):
                calls.append(part)
            else:
                text, stop = self._shown(part)
                texts.append(text)
            if self._over:
                break
        self._over = self._over or self._parts.called_enough
        return Said("".join(texts), "".join(thoughts), tuple(calls), stop, self._over)

    def _shown(self, part: Text) -> tuple[str, str]:
        before, stop = self._stops.feed(part.text)
        text, over = self._limited(before)
        self._over = over or bool(stop)
        return text, "" if over else stop

    def _limited(self, text: str) -> tuple[str, bool]:
        return self._sentences.feed(text) if self._sentences is not None else (text, False)
