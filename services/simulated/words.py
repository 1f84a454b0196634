"""Prompts measured and answers planned, without a vocabulary. Pure.

The rule for counting: a token is a run of up to 16 characters without white space, and every
message of a conversation costs 4 more for its frame. An answer is made of the same tokens, one
word each, and is planned whole before its first word is sent.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle, islice

FRAME_TOKENS = 4

_TOKEN = re.compile(r"\S{1,16}")
_OPENING = "This answer is simulated: no model has computed it."
_ENDLESS = (
    " Its words come at the pace that the profile of the model declares,"
    " while an engine process holds as much of the simulated card as the model would."
    " What is said does not depend on what was asked, and there is nothing in it to rely on."
)
_FIRST = re.findall(r"\s*\S+", _OPENING)
_REST = re.findall(r"\s*\S+", _ENDLESS)


def count_text(text: str) -> int:
    """Tokens of a bare text."""
    return sum(1 for _ in _TOKEN.finditer(text))


def count_talk(messages: Iterable[Iterable[str]]) -> int:
    """Tokens of a conversation, each message given by its texts."""
    return sum(FRAME_TOKENS + sum(map(count_text, texts)) for texts in messages)


@dataclass(frozen=True, slots=True)
class Plan:
    """An answer: its words, and what ends it. `stop` is the stop string that did, if one did."""

    words: tuple[str, ...]
    cut_short: bool
    """It ends because it may not be longer."""
    stop: str = ""


def plan(*, limit_tokens: int, own_tokens: int, stops: tuple[str, ...]) -> Plan:
    """An answer that would end by itself after `own_tokens`, and has at most `limit_tokens`.

    It ends before the first stop string: the one that is complete first, of several the longest.
    """
    words = tuple(islice(_said(), min(limit_tokens, own_tokens)))
    text = "".join(words)
    found = [(at + len(stop), at, stop) for stop in stops if (at := text.find(stop)) >= 0]
    if not found:
        return Plan(words, cut_short=limit_tokens <= own_tokens)
    _, at, stop = min(found)
    return Plan(tuple(_up_to(at, words)), cut_short=False, stop=stop)


def _said() -> Iterable[str]:
    yield from _FIRST
    yield from cycle(_REST)


def _up_to(end: int, words: tuple[str, ...]) -> Iterable[str]:
    for word in words:
        if end <= 0:
            return
        yield word[:end]
        end -= len(word)
