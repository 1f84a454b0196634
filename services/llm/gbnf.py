"""GBNF, the grammar language of llama.cpp: text → rules.

`gbnf_lark.py` says them in the matcher's language.
"""

import re
from dataclasses import dataclass
from typing import NoReturn

from services.llm.unfit import Unfit

MAX_SOURCE_BYTES = 64 * 1024
MAX_NESTING = 50
MAX_RULES = 1000
MAX_CHARACTERS = 10_000
"""Characters and classes in all rules, each a symbol of the grammar."""
MAX_REPEATS = 2000
"""Of one part, as in llama.cpp."""

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_BLANKS = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_REPEATS = re.compile(r"\{[ \t]*(\d{1,6})[ \t]*(?:(,)[ \t]*(\d{1,6})?[ \t]*)?\}")
_ESCAPE = re.compile(r'\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([nrt\\"\[\]]))')
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class Symbol:
    """One character of a set, as a regular expression."""

    expression: str


@dataclass(frozen=True, slots=True)
class Use:
    """What the rule of that name describes."""

    rule: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; of none: nothing."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of them."""

    options: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """Again and again; `most` None: without a limit."""

    part: "Node"
    least: int
    most: int | None


Node = Symbol | Use | Sequence | Choice | Repeat

_SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def rules_of(source: str) -> dict[str, Node]:
    """The rules by name, `root` among them, in order. Raises Unfit, which names the line."""
    if len(source.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
        raise Unfit(f"The grammar is larger than {MAX_SOURCE_BYTES // 1024} KiB; make it smaller.")
    return _Reader(source).rules()


class _Reader:
    """Reads from left to right."""

    def __init__(self, source: str) -> None:
        self._source, self._at, self._depth, self._characters = source, 0, 0, 0
        self._rules: dict[str, Node] = {}
        self._used: dict[str, int] = {}

    def rules(self) -> dict[str, Node]:
        self._skip(_BLANK_LINES)
        while self._at < len(self._source):
            self._rule()
            self._skip(_BLANK_LINES)
            if len(self._rules) > MAX_RULES:
                self._fail(f"has more than {MAX_RULES} rules")
        for name, at in self._used.items():
            if name not in self._rules:
                self._at = at
                self._fail(f"uses the rule `{name}`, which is not there")
        if "root" not in self._rules:
            raise Unfit("The grammar has no rule `root`; an answer begins with that.")
        return self._rules

    def _fail(self, what: str) -> NoReturn:
        line = self._source.count("\n", 0, self._at) + 1
        raise Unfit(f"The grammar, at line {line}, {what}.")

    def _skip(self, blanks: "re.Pattern[str]") -> None:
        found = blanks.match(self._source, self._at)
        self._at = found.end() if found else self._at

    def _next(self, text: str) -> bool:
        if not self._source.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _name(self) -> str:
        found = _NAME.match(self._source, self._at)
        if not found:
            self._fail("has something else where a rule, a text or a class is expected")
        self._at = found.end()
        return found[0]

    def _rule(self) -> None:
        name = self._name()
        if name in self._rules:
            self._fail(f"has a second rule `{name}`; join them with |")
        self._skip(_BLANKS)
        if not self._next("::="):
            self._fail(f"lacks ::= after `{name}`")
        self._skip(_BLANK_LINES)
        self._rules[name] = self._choice()
        if self._source[self._at : self._at + 1] not in {"", "\r", "\n"}:
            self._fail("has something else where a rule, a text or a class is expected")

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._next("|"):
            self._skip(_BLANK_LINES)
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while (part := self._part()) is not None:
            self._blanks()
            while (counts := self._counts()) is not None:
                part = Repeat(part, *counts)
                self._blanks()
            parts.append(part)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _blanks(self) -> None:
        self._skip(_BLANK_LINES if self._depth else _BLANKS)

    def _part(self) -> Node | None:
        char = self._source[self._at : self._at + 1]
        if char in {"<", "!"}:
            self._fail("names a token, which is not supported; write its text instead")
        if char == '"':
            return self._text()
        if char == "[":
            return self._class()
        if char == "(":
            return self._group()
        if self._next("."):
            return self._symbol("(?s:.)")
        if not _NAME.match(self._source, self._at):
            return None
        at, name = self._at, self._name()
        self._used.setdefault(name, at)
        return Use(name)

    def _group(self) -> Node:
        self._at, self._depth = self._at + 1, self._depth + 1
        if self._depth > MAX_NESTING:
            self._fail(f"is nested deeper than {MAX_NESTING} groups")
        self._skip(_BLANK_LINES)
        inner = self._choice()
        if not self._next(")"):
            self._fail("lacks a `)`")
        self._depth -= 1
        return inner

    def _counts(self) -> tuple[int, int | None] | None:
        for sign, counts in _SIGNS.items():
            if self._next(sign):
                return counts
        if self._source[self._at : self._at + 1] != "{":
            return None
        found = _REPEATS.match(self._source, self._at)
        if not found:
            self._fail("has a count that is not {n}, {n,} or {n,m}")
        least = int(found[1])
        most = int(found[3]) if found[3] else None if found[2] else least
        if max(least, most or 0) > MAX_REPEATS or (most is not None and most < least):
            self._fail(f"has a count that is not from 0 to {MAX_REPEATS}, the smaller first")
        self._at = found.end()
        return least, most

    def _symbol(self, expression: str) -> Symbol:
        self._characters += 1
        if self._characters > MAX_CHARACTERS:
            self._fail(f"has more than {MAX_CHARACTERS} characters and classes")
        return Symbol(expression)

    def _text(self) -> Node:
        self._at += 1
        chars = []
        while not self._next('"'):
            chars.append(self._symbol(_hex(self._char())))
        return Sequence(tuple(chars))

    def _class(self) -> Node:
        self._at += 1
        sign, ranges = "^" if self._next("^") else "", []
        while not self._next("]"):
            first = self._char()
            last = first
            if self._source[self._at : self._at + 1] == "-" and not self._source.startswith(
                "-]", self._at
            ):
                self._at += 1
                last = self._char()
            if last < first:
                self._fail("has a range whose end comes before its beginning")
            ranges.append(f"{_hex(first)}-{_hex(last)}")
        if not ranges:
            self._fail("has an empty class")
        return self._symbol(f"[{sign}{''.join(ranges)}]")

    def _char(self) -> str:
        char = self._source[self._at : self._at + 1]
        if not char:
            self._fail("has a text or a class that does not end")
        if char != "\\":
            self._at += 1
            return char
        found = _ESCAPE.match(self._source, self._at)
        if not found:
            self._fail(r"has an escape that is not \xXX, \uXXXX, \UXXXXXXXX or one of nrt\"[]")
        self._at = found.end()
        if found[4]:
            return _ESCAPED.get(found[4], found[4])
        code = int(found[1] or found[2] or found[3], 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            self._fail("has an escape that is no character")
        return chr(code)


def _hex(char: str) -> str:
    return f"\\x{{{ord(char):x}}}"
