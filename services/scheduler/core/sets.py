"""Which models may live together: the set language, and what it allows of given residents.

    images: flux & (whisper | tts)
    work:   coder | (chat-lite & +images)

`&` is together, `|` is either, `&` binds tighter, `+name` stands for another set. An expression is
a family of combinations; residents may live together if some combination of some set has them
all. A set that is made for inlining counts like any other. The rules speak only of the models they
name: one that no set names lives beside anybody, and without sets everything is allowed.

Families are never expanded. A question is about few residents, so each part of the expressions is
worth the combinations it offers *of those residents*, as bit masks, and of these the maximal ones.
Few nearly always (residents named once each: at most 3^(n/3), 324 for 16), but in general the
question is as hard as satisfiability. So there are bounds: WIDTH masks a part, and HANDLED masks a
question, after which the parts left are given NARROW each. Beyond a bound the largest masks with
the model in question are kept: the answer may then allow too little, never too much, and the model
asked for keeps at least one combination. What was handled is counted, not timed: the same question
has the same answer everywhere.

How much memory the models take is no matter of this room.
"""

import difflib
import string
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from operator import or_

MAX_CHARS = 4_096
"""Of one expression."""
MAX_CHARS_TOGETHER = 65_536
MAX_LEVELS = 64
"""Parentheses inside parentheses."""
MAX_SETS = 256

WIDTH = 512
NARROW = 8
HANDLED = 100_000
_PAIRS_PER_WIDTH = 32

_Family = tuple[int, ...]
"""Combinations as bit masks over the residents; none contains another."""
_NOBODY: _Family = (0,)
_WORD = frozenset(string.ascii_letters + string.digits + "._:-")


class SetError(ValueError):
    """A set that cannot be read: where, and what was expected there."""

    def __init__(self, name: str, column: int, message: str) -> None:
        super().__init__(f'set "{name}", column {column}: {message}')
        self.name = name
        self.column = column
        """Counted from 1; one past the last character means the end."""
        self.message = message


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    """A word, `+` and a word, an operator, a parenthesis; empty: the end."""
    column: int

    def __str__(self) -> str:
        shown = self.text if len(self.text) <= 64 else self.text[:61] + "..."
        return f'"{shown}"' if shown else "the end"


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an expression: a model, or parts (by index, all earlier ones) under an operator."""

    op: str
    key: str = ""
    parts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """What the sets allow."""

    parts: tuple[_Part, ...]
    """Equal parts once, each after those it is made of."""
    roots: tuple[int, ...]
    """Of the named sets."""
    named: frozenset[str]
    """The models that some set names."""

    def allows(self, residents: Collection[str]) -> bool:
        """Whether these may live together."""
        cover = Cover(self, residents)
        return cover.everybody in cover.masks

    def largest(self, residents: Collection[str], must: str) -> list[frozenset[str]]:
        """The maximal allowed subsets of `residents` and `must` that have `must`.

        Never empty; larger ones first, then by name.
        """
        cover = Cover(self, residents, must)
        found = [cover.models(mask) for mask in cover.masks if mask & cover.must == cover.must]
        return sorted(found, key=lambda models: (-len(models), sorted(models)))


class Cover:
    """One question: which of these residents may live together, `must` among them if given.

    `masks` are the maximal answers as bits, best first; `handled` says how much work it was, `cut`
    whether a bound was met, so that there may be more answers.
    """

    def __init__(self, rules: Rules, residents: Collection[str], must: str = "") -> None:
        everyone = {*residents, must} - {""}
        named = sorted(everyone & rules.named)
        self._bits = {key: 1 << place for place, key in enumerate(named)}
        self._free = everyone - rules.named
        self.everybody = (1 << len(named)) - 1
        self.must = self._bits.get(must, 0)
        self.handled = 0
        self.cut = False
        self.masks: _Family = self._answer(rules) if named else _NOBODY

    def models(self, mask: int) -> frozenset[str]:
        """The residents of a mask, and those of whom the rules do not speak."""
        return frozenset(self._free).union(key for key, bit in self._bits.items() if mask & bit)

    def _answer(self, rules: Rules) -> _Family:
        offers: list[_Family] = []
        for part in rules.parts:
            if part.op == "":
                offers.append((self._bits.get(part.key, 0),))
            elif part.op == "|":
                offers.append(self._either([offers[index] for index in part.parts]))
            else:
                offers.append(self._together([offers[index] for index in part.parts]))
        return self._either([offers[index] for index in rules.roots])

    def _either(self, families: Iterable[_Family]) -> _Family:
        return self._maximal({mask for family in families for mask in family})

    def _together(self, families: Iterable[_Family]) -> _Family:
        """Everybody's combinations joined, narrow families first: they keep the products small."""
        joined = _NOBODY
        for family in sorted(families, key=lambda family: (len(family), family)):
            if family != _NOBODY:
                left, right = self._fitting(joined, family)
                apart = not reduce(or_, left) & reduce(or_, right)
                joined = self._maximal({one | other for one in left for other in right}, apart)
        return joined

    def _fitting(self, left: _Family, right: _Family) -> tuple[_Family, _Family]:
        """As many of both as may be joined; families are cut at their end, where the worst are."""
        room = self._width * _PAIRS_PER_WIDTH
        if len(left) * len(right) > room:
            self.cut = True
            right = right[: self._width]
            left = left[: room // len(right)]
        self.handled += len(left) * len(right)
        return left, right

    def _maximal(self, masks: set[int], apart: bool = False) -> _Family:
        """Those that no other contains, with `must` first, then the larger; `apart`: all of them.

        In that order a mask stands after any that contains it, and beside those that cannot.
        """
        ordered = sorted(masks, key=self._worth)
        kept = ordered if apart or len(ordered) == 1 else self._uncontained(ordered)
        if len(kept) > self._width:
            self.cut = True
        return tuple(kept[: self._width])

    def _uncontained(self, ordered: list[int]) -> list[int]:
        kept: list[int] = []
        above: list[int] = []
        level = None
        for mask in ordered:
            if level != (level := self._worth(mask)[:2]):
                size = mask.bit_count()
                above = [other for other in kept if other.bit_count() > size]
            self.handled += 1 + len(above)
            if not any(mask & other == mask for other in above):
                kept.append(mask)
            if len(kept) > self._width:
                break
        return kept

    def _worth(self, mask: int) -> tuple[bool, int, int]:
        return mask & self.must != self.must, -mask.bit_count(), mask

    @property
    def _width(self) -> int:
        return WIDTH if self.handled < HANDLED else NARROW


def parse_sets(texts: Mapping[str, str], models: Collection[str]) -> Rules:
    """The rules of the named expressions over the configured models; SetError says what is wrong.

    At most MAX_SETS sets of MAX_CHARS characters each, MAX_CHARS_TOGETHER in all, and MAX_LEVELS
    parentheses inside one another.
    """
    tokens = {name: _tokens(name, text) for name, text in _bounded(texts).items()}
    known = frozenset(models)
    parts: dict[_Part, int] = {}
    roots: dict[str, int] = {}
    for name in _inlined_first(tokens):
        roots[name] = _Parser(name, tokens[name], known, roots, parts).whole()
    named = frozenset(part.key for part in parts if part.key)
    return Rules(tuple(parts), tuple(dict.fromkeys(roots.values())), named)


def _bounded(texts: Mapping[str, str]) -> Mapping[str, str]:
    together = 0
    for count, (name, text) in enumerate(texts.items(), 1):
        if count > MAX_SETS:
            raise SetError(name, 1, f"expected no further set: there may be {MAX_SETS}")
        if len(text) > MAX_CHARS:
            raise SetError(
                name, MAX_CHARS + 1, f"expected the end: a set has at most {MAX_CHARS:,} characters"
            )
        together += len(text)
        if together > MAX_CHARS_TOGETHER:
            column = len(text) - (together - MAX_CHARS_TOGETHER) + 1
            raise SetError(
                name,
                column,
                f"expected the end: all sets have at most {MAX_CHARS_TOGETHER:,} characters",
            )
    return texts


def _tokens(name: str, text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        start = at
        at += 1
        if text[start].isspace():
            continue
        if text[start] in _WORD or text[start] == "+":
            while at < len(text) and text[at] in _WORD:
                at += 1
        elif text[start] not in "&|()":
            raise SetError(
                name,
                start + 1,
                f'expected a model, "+" and a set, "&", "|", "(" or ")", found {text[start]!r}',
            )
        token = _Token(text[start:at], start + 1)
        if token.text == "+":
            raise SetError(name, at + 1, 'expected the name of a set right after the "+"')
        found.append(token)
    found.append(_Token("", len(text) + 1))
    return found


def _inlined_first(tokens: Mapping[str, list[_Token]]) -> Iterable[str]:
    """The names in an order that has each set after those that it inlines."""
    inlines: dict[str, dict[str, int]] = {}
    for name, of_set in tokens.items():
        inlines[name] = {}
        for token in of_set:
            other = token.text[1:]
            if not token.text.startswith("+"):
                continue
            if other not in tokens:
                raise _unknown(name, token, "set", other, tokens)
            inlines[name].setdefault(other, token.column)
    try:
        return tuple(TopologicalSorter(inlines).static_order())
    except CycleError as error:
        circle = error.args[1][:0:-1]
        first = circle.index(min(circle))
        circle = [*circle[first:], *circle[:first]]
        back = [*circle[1:], circle[0]]
        raise SetError(
            circle[0],
            inlines[circle[0]][back[0]],
            f"expected a set that does not inline this one, found the circle {' > '.join(circle)}"
            f" > {circle[0]}",
        ) from None


def _unknown(name: str, token: _Token, kind: str, word: str, known: Iterable[str]) -> SetError:
    close = difflib.get_close_matches(word[:64], sorted(known), n=1)
    hint = f' (did you mean "{close[0]}"?)' if close else ""
    return SetError(name, token.column, f"expected the name of a {kind}, found {token}{hint}")


class _Parser:
    """Reads one set. A rule of the grammar a method; each returns the index of its part."""

    def __init__(
        self,
        name: str,
        tokens: list[_Token],
        models: frozenset[str],
        sets: Mapping[str, int],
        parts: dict[_Part, int],
    ) -> None:
        self._name = name
        self._tokens = tokens
        self._at = 0
        self._models = models
        self._sets = sets
        self._parts = parts
        self._levels = 0
        """Parentheses around the token that is next."""

    def whole(self) -> int:
        part = self._alternatives()
        if self._next.text:
            raise self._expected('"&", "|" or the end')
        return part

    def _alternatives(self) -> int:
        return self._chain("|", lambda: self._chain("&", self._one))

    def _chain(self, op: str, operand: Callable[[], int]) -> int:
        found = [operand()]
        while self._next.text == op:
            self._at += 1
            found.append(operand())
        distinct = tuple(dict.fromkeys(found))
        return found[0] if len(distinct) == 1 else self._part(_Part(op, parts=distinct))

    def _one(self) -> int:
        token = self._next
        if token.text == "(":
            return self._parenthesis()
        if token.text in {"", "&", "|", ")"}:
            raise self._expected('a model, "+" and a set, or "("')
        self._at += 1
        if token.text.startswith("+"):
            return self._sets[token.text[1:]]
        if token.text not in self._models:
            raise _unknown(self._name, token, "model", token.text, self._models)
        return self._part(_Part("", token.text))

    def _parenthesis(self) -> int:
        opened = self._next
        if self._levels == MAX_LEVELS:
            raise self._expected(f"at most {MAX_LEVELS} parentheses inside one another")
        self._levels += 1
        self._at += 1
        part = self._alternatives()
        if self._next.text != ")":
            raise self._expected(f'"&", "|" or the ")" of the "(" at column {opened.column}')
        self._levels -= 1
        self._at += 1
        return part

    def _part(self, part: _Part) -> int:
        return self._parts.setdefault(part, len(self._parts))

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _expected(self, what: str) -> SetError:
        return SetError(self._name, self._next.column, f"expected {what}, found {self._next}")
