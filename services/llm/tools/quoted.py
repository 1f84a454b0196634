"""The form of calls that sets strings between tokens and leaves keys bare → JSON.

    {city:<|"|>Paris<|"|>,days:3,near:[<|"|>Lyon<|"|>]}   →   {"city": "Paris", "days": 3, …}

Pure.
"""

import json
import re
from typing import Any

from services.llm.marks import MAX_DEPTH

_SCALAR = re.compile(r"\s*(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)\s*(?=[,}\]])")
_BARE_KEY = re.compile(r"\s*([^\s:,{}\[\]]+)\s*:")


def to_json(text: str, quote: str) -> str | None:
    """The object as JSON text; None: it is no object of this form."""
    reader = _Reader(text, quote)
    try:
        value = reader.value(0)
    except ValueError:
        return None
    if not isinstance(value, dict) or not reader.at_end():
        return None
    return json.dumps(value)


class _Reader:
    """Recursive descent, as deep as `MAX_DEPTH`. Raises ValueError."""

    def __init__(self, text: str, quote: str) -> None:
        self._text, self._quote, self._at = text, quote, 0

    def at_end(self) -> bool:
        return not self._text[self._at :].strip()

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        if self._skips("{"):
            return self._object(depth + 1)
        if self._skips("["):
            return self._list(depth + 1)
        if self._skips(self._quote):
            return self._string()
        return json.loads(self._matched(_SCALAR))

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self._skips("}"):
            if found and not self._skips(","):
                raise ValueError("a comma is missing")
            key = self._key()
            found[key] = self.value(depth)
        return found

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        while not self._skips("]"):
            if found and not self._skips(","):
                raise ValueError("a comma is missing")
            found.append(self.value(depth))
        return found

    def _key(self) -> str:
        if not self._skips(self._quote):
            return self._matched(_BARE_KEY)
        key = self._string()
        if not self._skips(":"):
            raise ValueError("a colon is missing")
        return key

    def _string(self) -> str:
        end = self._text.index(self._quote, self._at)
        text, self._at = self._text[self._at : end], end + len(self._quote)
        return text

    def _matched(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(f"nothing known at {self._at}")
        self._at = found.end()
        return found[1]

    def _skips(self, mark: str) -> bool:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True
