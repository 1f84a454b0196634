"""Marks around what strangers say in a prompt, so that it cannot speak with the template's voice.

Every name of a control token (`<|im_end|>` and the like) in a message, a tool or a call is marked
before rendering; the marked text is tokenised as plain text afterwards. The marks are Unicode
noncharacters, which exist for such internal use; a string that holds one itself gets U+FFFD in its
place. Strings without control-token names stay as they are, so templates that look into them work
as elsewhere.

Python and JSON escape noncharacters where they quote a string, which would take the marks off a
name and leave the name; so both kinds of quoting put them back.

What the marks do not cover: a name that only comes to be where a template puts two strings side by
side, with nothing in between.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MAX_DEPTH = 64
"""Of nested values, in a tool's schema or a call's arguments."""

_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
_MARKED = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")
# One escape sequence at a time, so that an escaped backslash before "ufdd0" is not taken for one.
_ESCAPE = re.compile(r"\\(ufdd0|ufdd1|.)", re.DOTALL)
_BY_ESCAPE = {"ufdd0": _OPEN, "ufdd1": _CLOSE}


class TooDeepError(ValueError):
    """A value is nested deeper than `MAX_DEPTH`."""


class _Marked(str):
    """A string with marks in it: they survive where a template shows a whole list or mapping."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _with_marks(super().__repr__())


def _with_marks(quoted: str) -> str:
    return _ESCAPE.sub(lambda found: _BY_ESCAPE.get(found[1], found[0]), quoted)


class Marks:
    """Marks the names of one vocabulary's control tokens."""

    def __init__(self, controls: Iterable[str]) -> None:
        names = sorted({name for name in controls if name}, key=len, reverse=True)
        self._names = re.compile("|".join(map(re.escape, names))) if names else None

    def text(self, text: str) -> str:
        """A string, with marks where it needs them."""
        text = text.replace(_OPEN, "\ufffd").replace(_CLOSE, "\ufffd")
        if self._names is None:
            return text
        marked, count = self._names.subn(lambda found: f"{_OPEN}{found[0]}{_CLOSE}", text)
        return _Marked(marked) if count else text

    def value(self, value: Any, depth: int = 0) -> Any:
        """Every string in a JSON value, keys included. Raises TooDeepError."""
        if depth > MAX_DEPTH:
            raise TooDeepError
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(k): self.value(v, depth + 1) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item, depth + 1) for item in value]
        return value


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The template filter `tojson`: plain JSON. Jinja's own escapes for HTML, which no model was
    trained on.
    """
    text = json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return _with_marks(text) if ensure_ascii else text


def pieces(rendered: str) -> Iterator[tuple[str, bool]]:
    """The text of a rendering in order, and whether it is the template's own."""
    # re.split with one group: template text and marked text take turns.
    for i, piece in enumerate(_MARKED.split(rendered)):
        if piece:
            yield piece, i % 2 == 0
