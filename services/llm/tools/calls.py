"""Reads the calls behind one opening, while they are being written.

A call counts when its object is whole, is valid, and names a tool on offer; until then its text is
held back, and what turns out to be no call comes out as the text it is. So nobody ever gets half a
call. Where a grammar enforces the form (`eager`) none can go wrong, and arguments are passed on as
they come. Text outside calls is `parts.py`.
"""

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

from services.llm.tools.quoted import to_json
from services.llm.tools.scan import JsonScan, QuotedScan
from services.llm.tools.syntax import Syntax
from services.llm.values import ToolCallDelta

MAX_CALL_CHARS = 1 << 20
"""Of one call; what is longer is text."""
MAX_HEAD_CHARS = 256
"""Of a name that stands before its arguments, with what is written around it."""

_ARGUMENTS = ("arguments", "parameters")
_KEYS = frozenset({"name", "type", "id", *_ARGUMENTS})
_BETWEEN = " \t\r\n[],;"
_HEAD = re.compile(r"(?:call:)?([^\s\[\]{}]+)(?:\[CALL_ID\][\w\-]*)?(\[ARGS\])?\s*")
_HEAD_PART = re.compile(r"[^\s{}]+\s*")

Begin = Callable[[str], ToolCallDelta]
"""Name → the first piece of a new call."""


class Frame:
    """What follows one opening: calls, what stands between them, and the closing.

    Feed it until it is `over`; then `text` is what turned out to be no call, and `rest` has not
    been read.
    """

    def __init__(
        self,
        syntax: Syntax,
        tools: frozenset[str],
        begin: Begin,
        *,
        opening: str,
        eager: bool,
        single: bool,
    ) -> None:
        self._syntax, self._tools, self._begin = syntax, tools, begin
        self._eager, self._single = eager, single
        self.over = False
        self.text = self.rest = ""
        self._seen, self._seen_chars = [opening], 0
        self._held = ""
        self._scan: JsonScan | QuotedScan | None = None
        self._name, self._headed = "", False
        self.calls = 0
        """How many are whole."""
        self._first: ToolCallDelta | None = None
        self._sent = 0

    def feed(self, text: str) -> list[ToolCallDelta]:
        """What became certain of the calls."""
        deltas: list[ToolCallDelta] = []
        self._held += text
        while self._held and not self.over and not self.enough:
            if self._scan is None and not self._read_between():
                break
            if self._scan is not None:
                deltas += self._read_object(self._scan)
        return deltas

    @property
    def enough(self) -> bool:
        """It holds all the calls that the answer may have."""
        return self._single and self.calls > 0

    def flush(self) -> None:
        """The answer ended."""
        if not self.over:
            is_layout = self.calls > 0 and _may_be(self._syntax.closings, self._held)
            self._end("" if is_layout else self._held)

    def _read_between(self) -> bool:
        """Skip to the next object; whether there is one."""
        syntax, held = self._syntax, self._held
        skipped = 0
        while skipped < len(held) and held[skipped] in _BETWEEN:
            if _may_be(syntax.openings, held, skipped):
                break
            skipped += 1
        self._see(held[:skipped])
        self._held = held = held[skipped:]
        if not held:
            return False
        if _may_be((*syntax.closings, *syntax.openings), held):
            self._read_mark(held)
            return False
        if held[0] == "{" and not syntax.quote:
            self._scan = JsonScan(_KEYS)
        elif syntax.named:
            self._read_head(held)
        else:
            self._finish(held)
        return self._scan is not None

    def _read_mark(self, held: str) -> None:
        """A closing, or the opening of the next frame, if it is whole."""
        for closing in self._syntax.closings:
            if held.startswith(closing):
                self._finish(held[len(closing) :])
                return
        if held.startswith(self._syntax.openings):
            self._finish(held)

    def _read_head(self, held: str) -> None:
        """A name, up to the brace of its arguments."""
        head, brace, _ = held.partition("{")
        if not brace and len(head) <= MAX_HEAD_CHARS and _HEAD_PART.fullmatch(head):
            return
        found = _HEAD.fullmatch(head) if brace else None
        if found is None or found[1] not in self._tools:
            self._finish(held)
            return
        self._name, self._headed, self._held = found[1], True, held[len(head) :]
        self._see(head)
        self._scan = QuotedScan(self._syntax.quote) if self._syntax.quote else JsonScan()

    def _read_object(self, scan: JsonScan | QuotedScan) -> list[ToolCallDelta]:
        taken = scan.feed(self._held)
        piece, self._held = self._held[:taken], self._held[taken:]
        self._seen_chars += taken
        if self._is_no_call(scan):
            self._end("")
            return []
        deltas = self._eagerly(scan, piece) if self._eager else []
        if not scan.done:
            return deltas
        if self._first is None:
            if (call := self._judged(scan)) is None:
                self._end("")
                return []
            deltas = self._begun(*call)
        self.calls += 1
        self._seen, self._seen_chars = [], 0
        self._scan, self._first, self._sent = None, None, 0
        self._name, self._headed = "", False
        return deltas

    def _is_no_call(self, scan: JsonScan | QuotedScan) -> bool:
        """It shows already."""
        if isinstance(scan, JsonScan) and not self._name and "name" in scan.fields:
            self._name = _text(scan.fields["name"])
            if self._name not in self._tools:
                return True
        return scan.broken or self._seen_chars > MAX_CALL_CHARS

    def _begun(self, name: str, arguments: str) -> list[ToolCallDelta]:
        self._first = self._begin(name)
        return [self._first, ToolCallDelta(self._first.index, arguments_json=arguments)]

    def _eagerly(self, scan: JsonScan | QuotedScan, piece: str) -> list[ToolCallDelta]:
        """Pieces of arguments whose call is certain, though it is not whole."""
        if isinstance(scan, QuotedScan) or not self._name:
            return []
        if not self._headed:
            piece = self._fresh_arguments(scan)
        if not piece:
            return []
        if self._first is None:
            return self._begun(self._name, piece) if piece[0] == "{" else []
        return [ToolCallDelta(self._first.index, arguments_json=piece)]

    def _fresh_arguments(self, scan: JsonScan) -> str:
        if scan.key in _ARGUMENTS:
            fresh = "".join(scan.value[self._sent :])
        else:
            fresh = next((scan.fields[k] for k in _ARGUMENTS if k in scan.fields), "")[self._sent :]
        self._sent += len(fresh)
        return fresh

    def _judged(self, scan: JsonScan | QuotedScan) -> tuple[str, str] | None:
        """Name and arguments of a whole object; None: it is no call."""
        if isinstance(scan, QuotedScan):
            arguments = to_json(scan.raw(), self._syntax.quote)
            return None if arguments is None else (self._name, arguments)
        if self._headed:
            return _call(self._name, scan.raw())
        given = (scan.fields[key] for key in _ARGUMENTS if key in scan.fields)
        return _call(self._name, next(given, "{}")) if self._name else None

    def _see(self, text: str) -> None:
        if text:
            self._seen.append(text)

    def _finish(self, rest: str) -> None:
        """No call begins here."""
        self.text = "" if self.calls else "".join(self._seen)
        self.rest, self._held, self.over = rest, "", True

    def _end(self, more: str) -> None:
        """What was taken for a call is none."""
        lost = self._scan.raw() if self._scan is not None else ""
        seen = self._seen if not self.calls or self._scan is not None else []
        self.text = "".join(seen) + lost + more if self._first is None else ""
        self.rest, self._held, self.over = "" if more else self._held, "", True


def _may_be(marks: tuple[str, ...], text: str, at: int = 0) -> bool:
    """A mark stands there, or may when the text goes on."""
    return any(mark.startswith(text[at : at + len(mark)]) for mark in marks)


def _call(name: str, arguments: str) -> tuple[str, str] | None:
    """Arguments as JSON text of an object: as they were written, if they are that."""
    value = _loaded(arguments)
    if isinstance(value, str):  # an object that was quoted once more
        arguments, value = value, _loaded(value)
    if isinstance(value, dict):
        return name, arguments
    if value is None and arguments.strip() == "null":
        return name, "{}"
    lenient = _loaded(arguments, strict=False)  # line breaks within strings
    return (name, json.dumps(lenient)) if isinstance(lenient, dict) else None


def _text(quoted: str) -> str:
    text = _loaded(quoted)
    return text if isinstance(text, str) else ""


def _loaded(text: str, *, strict: bool = True) -> Any:
    try:
        return json.loads(text, strict=strict, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
