"""Where a call's object ends, and what stands in it, while it is still being written.

Two forms: JSON, and the one of models that set strings between tokens of their own. Both scans are
fed text in pieces, stop behind the closing brace, and look at every character once. Whether the
object is a call is judged in `calls.py`.
"""

from collections.abc import Iterable
from typing import Protocol

MAX_KEY_CHARS = 64
_JSON = frozenset(' \t\r\n{}[]:,"-+.0123456789eEtrufalsn')
"""What stands outside strings; anything else ends the scan before it."""
_ENDS = frozenset('}]"')


class Scan(Protocol):
    """An object that is being written, from its `{` on."""

    done: bool
    """Its closing brace has come."""
    broken: bool
    """It can be no call."""

    def feed(self, text: str) -> int:
        """Take what belongs to the object; how many characters that was."""

    def raw(self) -> str:
        """All of it, as it was written."""


class JsonScan:
    """A JSON object. `keys`: the only ones a call has; any other ends the scan early, so that an
    answer which merely is JSON is not held back for long. None: all keys will do.
    """

    def __init__(self, keys: Iterable[str] | None = None) -> None:
        self._keys = None if keys is None else frozenset(keys)
        self.done = self.broken = False
        self.fields: dict[str, str] = {}
        """The JSON text of the object's own values that are complete."""
        self.key = ""
        """Of the value that is being written."""
        self.value: list[str] = []
        """Its characters so far."""
        self._raw: list[str] = []
        self._depth = 0
        self._in_string = self._escaped = self._in_key = False
        self._name: list[str] = []

    def feed(self, text: str) -> int:
        """See the protocol."""
        taken = 0
        while taken < len(text) and not self.done and not self.broken:
            if not self._in_string and text[taken] not in _JSON:
                self.broken = True
            else:
                self._take(text[taken])
                taken += 1
        self._raw.append(text[:taken])
        return taken

    def raw(self) -> str:
        """See the protocol."""
        return "".join(self._raw)

    def _take(self, char: str) -> None:
        if self._in_string:
            self._within_string(char)
            return
        if self._depth == 1 and char in ":,}":
            self._between(char)
            return
        if char == '"':
            self._in_string = True
            self._in_key = self._depth == 1 and not self.key
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
        self._keep(char)

    def _within_string(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False
            if self._in_key:
                self._in_key = False
                return
        if self._in_key:
            self._name.append(char)
            self.broken = len(self._name) > MAX_KEY_CHARS and self._keys is not None
        else:
            self._keep(char)

    def _between(self, char: str) -> None:
        if char == ":" and not self.key:
            self.key = "".join(self._name)
            self.broken = self._keys is not None and self.key not in self._keys
            return
        if self.key:
            self.fields[self.key] = "".join(self.value).strip()
        self.key, self.value, self._name = "", [], []
        self.done = char == "}"

    def _keep(self, char: str) -> None:
        if not self.key or (char.isspace() and self._is_around()):
            return
        self.value.append(char)

    def _is_around(self) -> bool:
        """Not within the value: before it, or behind one whose end shows."""
        within = self._in_string or self._depth > 1
        return not within and (not self.value or self.value[-1] in _ENDS)


class QuotedScan:
    """An object whose strings stand between `quote`s, which no string can hold."""

    def __init__(self, quote: str) -> None:
        self.done = self.broken = False
        self._quote, self._raw = quote, [""]
        self._tail, self._depth, self._in_string = "", 0, False

    def feed(self, text: str) -> int:
        """See the protocol."""
        for i, char in enumerate(text):
            self._take(char)
            if self.done:
                self._raw.append(text[: i + 1])
                return i + 1
        self._raw.append(text)
        return len(text)

    def raw(self) -> str:
        """See the protocol."""
        return "".join(self._raw)

    def _take(self, char: str) -> None:
        self._tail = (self._tail + char)[-len(self._quote) :]
        if self._tail == self._quote:
            self._in_string, self._tail = not self._in_string, ""
        elif not self._in_string and char in "{[":
            self._depth += 1
        elif not self._in_string and char in "}]":
            self._depth -= 1
            self.done = self._depth <= 0
