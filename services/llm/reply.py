"""What a model writes, told apart: what it says, what it thinks, which tools it calls.

Pure: the bytes of tokens in, pieces of an answer out, the same however the bytes are cut. Which
forms there are is decided by the prompt that the answer follows; tokens and limits stay out.
"""

from dataclasses import dataclass

from services.llm.text import AnswerText
from services.llm.values import ToolCallDelta


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """What an answer may hold besides text; the plain form holds nothing else."""


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
    """Reads one answer."""

    def __init__(self, form: ReplyForm, stops: tuple[str, ...], max_sentences: int = 0) -> None:
        self._form, self._max_sentences = form, max_sentences
        self._text = AnswerText(stops)

    def feed(self, data: bytes) -> Said:
        """What the bytes of the next token make certain."""
        text, stop = self._text.feed(data)
        return Said(text, stop=stop, over=bool(stop))

    def flush(self) -> Said:
        """The answer ended by itself: what was held back."""
        return Said(self._text.flush())

    @property
    def thinking(self) -> bool:
        """What comes next is reasoning, as far as is known."""
        return False

    @property
    def called(self) -> bool:
        """It holds a tool call."""
        return False
