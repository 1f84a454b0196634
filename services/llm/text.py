"""From token bytes to text that may be shown: whole characters only, never part of a stop string.

Pure. Both classes see a stream in pieces and give the same result however it is cut; a property
test compares them with an oracle that sees the whole. Tokens and vocabularies stay out.
"""

import codecs


class Utf8Stream:
    """Bytes in, whole characters out.

    A character that is still incomplete is held back; what can never become one is U+FFFD. An
    incomplete one at the very end is never shown.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        """The characters that `data` completes."""
        return self._decoder.decode(data)


class StopScanner:
    """Finds the first stop string in a text that arrives in pieces.

    First is the one whose end comes first; of several that end there, the longest. Text that may
    be the beginning of a stop string is held back until that is decided, so at most the longest
    stop string less one character.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._prefixes = frozenset(stop[:n] for stop in stops for n in range(1, len(stop)))
        self._longest = max((len(prefix) for prefix in self._prefixes), default=0)
        self._held = ""

    def feed(self, text: str) -> tuple[str, str]:
        """What may be shown now, and the stop string that ended the text ("": none did)."""
        before, stop, _ = self.split(text)
        return before, stop

    def split(self, text: str) -> tuple[str, str, str]:
        """As `feed`, for a text that goes on: the third is what comes behind the stop string."""
        if not self._stops:
            return text, "", ""
        text = self._held + text
        self._held = ""
        if found := self._first(text):
            start, stop = found
            return text[:start], stop, text[start + len(stop) :]
        keep = self._undecided(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], "", ""

    def flush(self) -> str:
        """The text ended: what was held back is no stop string."""
        held, self._held = self._held, ""
        return held

    def _first(self, text: str) -> tuple[int, str] | None:
        found = ((text.find(stop), stop) for stop in self._stops)
        ends = [(start + len(stop), start, stop) for start, stop in found if start >= 0]
        if not ends:
            return None
        _, start, stop = min(ends)
        return start, stop

    def _undecided(self, text: str) -> int:
        for length in range(min(self._longest, len(text)), 0, -1):
            if text[-length:] in self._prefixes:
                return length
        return 0


class AnswerText:
    """The text of one answer: UTF-8, then stop strings."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._utf8 = Utf8Stream()
        self._scanner = StopScanner(stops)

    def feed(self, data: bytes) -> tuple[str, str]:
        """As `StopScanner.feed`, of bytes."""
        text = self._utf8.feed(data)
        return self._scanner.feed(text) if text else ("", "")

    def flush(self) -> str:
        """As `StopScanner.flush`."""
        return self._scanner.flush()
