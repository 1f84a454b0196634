"""How models that think before they answer mark their thoughts, and how one keeps them from it.

Pure: the text of a template or a prompt in, marks out.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThinkMarks:
    """What stands before and behind a thought."""

    opening: str
    closing: str
    empty: str
    """A thought that is over already: put before an answer, it keeps a model from thinking."""


_KNOWN = (
    ThinkMarks("<think>", "</think>", "<think>\n\n</think>\n\n"),
    ThinkMarks("<|channel>thought\n", "<channel|>", "<|channel>thought\n<channel|>"),
    ThinkMarks("[THINK]", "[/THINK]", "[THINK][/THINK]"),
    ThinkMarks("<seed:think>", "</seed:think>", "<seed:think></seed:think>"),
)


def marks_in(source: str) -> ThinkMarks | None:
    """The marks that a template writes or looks for; None: it knows of no thoughts."""
    for marks in _KNOWN:
        # A template may write line breaks as `\n`, so the names of the marks must do.
        if marks.opening.strip() in source or marks.closing in source:
            return marks
    return None


def marks_of(token_of: Callable[[str], int | None]) -> ThinkMarks | None:
    """The marks for which a vocabulary has tokens of their own."""
    for marks in _KNOWN:
        if token_of(marks.opening) is not None and token_of(marks.closing) is not None:
            return marks
    return None


def is_switch(source: str) -> bool:
    """The template itself turns thinking on and off when it is told to."""
    return "enable_thinking" in source


def begins_inside(prompt: str, marks: ThinkMarks) -> bool:
    """The prompt ends with an open thought, which the answer goes on with."""
    return prompt.rstrip().endswith(marks.opening.rstrip())


def is_open(text: str, marks: ThinkMarks) -> bool:
    """The text holds a thought that has not ended."""
    return text.rfind(marks.opening) > text.rfind(marks.closing)
