"""Ends a text after so many sentences. Pure, and the same however the text is cut.

A sentence ends at . ! ? … (with the quotes or brackets that close there) when space follows, and at
their wide Chinese and Japanese kin even without. A full stop does not end one after an
abbreviation, an initial or the number of a list, nor before a small letter; within a number no
space follows it. A text in a language without such marks is never cut.
"""

import re

_STOPS = frozenset(".!?…")
_WIDE_STOPS = frozenset("。！？｡")  # noqa: RUF001  they are meant
_CLOSERS = frozenset("\"'”’»)]}*_」』）】")  # noqa: RUF001
_ABBREVIATIONS = frozenset(
    {"mr", "mrs", "ms", "dr", "prof", "st", "jr", "vs", "cf", "fig", "nos", "pp", "approx", "dept"}
    | {"e.g", "i.e", "bzw", "ca", "nr", "z.b", "d.h", "u.a", "evtl", "ggf", "bijv", "mme", "sra"}
)
"""Words that seldom end a sentence. "No." and "etc." do."""
_LIST_NUMBER = re.compile(r"\s*\d{1,3}")
_TAIL_CHARS = 32
"""Of a line, kept to judge its last word."""


class SentenceLimit:
    """Lets through the first `limit` sentences."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._line = ""
        self._line_chars = 0
        self._stop = ""
        self._space: list[str] = []

    def feed(self, text: str) -> tuple[str, bool]:
        """What may be shown, and whether the last sentence has ended."""
        shown: list[str] = []
        for char in text:
            if self._is_end_before(char):
                self._left -= 1
                self._stop = ""
                if self._left <= 0:
                    return "".join(shown), True
            self._take(char, shown)
        return "".join(shown), False

    def flush(self) -> str:
        """The text ended: space that was held back, unless it stood behind the last sentence."""
        return "" if self._stop and self._left <= 1 else "".join(self._space)

    def _is_end_before(self, char: str) -> bool:
        """A sentence ended before `char`, which settles it."""
        if not self._stop or char.isspace():
            return False
        if self._stop in _WIDE_STOPS:
            return char not in _CLOSERS and char not in _WIDE_STOPS
        return bool(self._space) and not (self._stop in ".…" and char.islower())

    def _take(self, char: str, shown: list[str]) -> None:
        if char.isspace():
            self._take_space(char, shown)
            return
        shown.extend(self._space)
        spaced = bool(self._space)
        self._space.clear()
        if char in _WIDE_STOPS or (char in _STOPS and not self._is_abbreviated(char)):
            self._stop = char
        elif spaced or char not in _CLOSERS:
            self._stop = ""
        self._keep(char)
        shown.append(char)

    def _take_space(self, char: str, shown: list[str]) -> None:
        if self._stop:
            self._space.append(char)
        else:
            shown.append(char)
        if char == "\n":
            self._line, self._line_chars = "", 0
        else:
            self._keep(char)

    def _keep(self, char: str) -> None:
        self._line = (self._line + char)[-_TAIL_CHARS:]
        self._line_chars += 1

    def _is_abbreviated(self, char: str) -> bool:
        if char != ".":
            return False
        if self._line_chars <= _TAIL_CHARS and _LIST_NUMBER.fullmatch(self._line):
            return True
        word = self._line.rpartition(" ")[2].lstrip("(\"'“‘«[")  # noqa: RUF001
        initial = len(word) == 1 and word.isalpha() and word.isupper() and word != "I"
        return initial or word.lower() in _ABBREVIATIONS
