"""How heavy a regular expression is, before anything compiles it.

Counted repetitions multiply: `(a{1000}){1000}` stands for a million positions, each of which the
matcher may have to follow at every byte. Syntax is left to the library that compiles; this only
counts.
"""

import re

from services.llm.unfit import Unfit

MAX_WEIGHT = 1000
"""Positions of one expression; its repetitions written out. 10 to 30 ms a mask at the worst."""
MAX_REGEX_NESTING = 50

_COUNT = re.compile(r"\{(\d{1,7})(?:,(\d{0,7}))?\}")
_TOO_LONG_COUNT = re.compile(r"\{\d*,?\d{8,}|\{\d{8,}")
_CLASS_NAME = re.compile(r"[pPxuU]\{[^}]*\}")
_CLASS_OPENS = re.compile(r"\[\^?(?:-+|\]?)")
"""A bracket that comes first is a character of the class."""
_FLAGS = re.compile(r"\?(?:P?<[^>=!]*>|[a-zA-Z-]*:?|[=!]|<[=!])")


def weigh(pattern: str) -> int:
    """Positions of the expression. Raises Unfit for one that is too heavy or nested too deep."""
    if re.search(r"\(\?[a-zA-Z]*x", pattern) or _TOO_LONG_COUNT.search(pattern):
        raise Unfit("it has a flag `x` or a count of 8 digits, which is not supported")
    sums, last, at = [0], 0, 0
    while at < len(pattern):
        char = pattern[at]
        if char == "(":
            sums.append(0)
            at = _end(_FLAGS, pattern, at + 1)
            last = 0
        elif char == ")" and len(sums) > 1:
            last, at = sums.pop(), at + 1
            sums[-1] += last
        elif char == "{" and (count := _COUNT.match(pattern, at)):
            more = last * max(int(count[1]), int(count[2] or 0), 1) - last
            sums[-1], last, at = sums[-1] + more, last + more, count.end()
        elif char in "*+?|^$":
            at += 1
        else:
            last, at = 1, _atom_end(pattern, at)
            sums[-1] += 1
        if sum(sums) > MAX_WEIGHT:
            raise Unfit(f"it stands for more than {MAX_WEIGHT} positions; repeat less in it")
        if len(sums) > MAX_REGEX_NESTING:
            raise Unfit(f"its groups are nested more than {MAX_REGEX_NESTING} deep")
    return sum(sums)


def _end(what: "re.Pattern[str]", pattern: str, at: int) -> int:
    found = what.match(pattern, at)
    return found.end() if found else at


def _atom_end(pattern: str, at: int) -> int:
    """Behind one character, escape or class; classes nest."""
    depth = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at = max(_end(_CLASS_NAME, pattern, at + 1), at + 2)
        elif pattern[at] == "[":
            depth, at = depth + 1, _end(_CLASS_OPENS, pattern, at)
        else:
            depth, at = depth - (depth > 0 and pattern[at] == "]"), at + 1
        if depth == 0:
            break
    return at
