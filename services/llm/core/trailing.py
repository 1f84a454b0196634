"""How far a draft model has come with texts that grow, and what it reads next. Pure.

A draft model has a KV cache of its own. Of each text it holds the first `cached` tokens and, behind
them, the guesses it made last, which the text may or may not have become. Before it can guess again
it reads what it lacks:

 1. Texts come in order of arrival. One that does not fit into what is left of the cache, its
    guesses included, is let go of: it is guessed for when there is room.
 2. What a step adds to a text, two tokens at most, is read at once: it costs next to nothing.
 3. More than that is a prompt, or what came while guessing was off. All of these together get
    `chunk_tokens` of a step: a long prompt must not stall its neighbours here either.
"""

from collections.abc import Sequence
from typing import NamedTuple

STEP_TOKENS = 2
"""A step that took every guess has added one more, and the last guess was never read."""


class Trail:
    """One text as the draft model has it, in a sequence of its cache."""

    __slots__ = ("ahead", "cached", "sequence")

    def __init__(self, sequence: int) -> None:
        self.sequence, self.cached = sequence, 0
        self.ahead: list[int] = []
        """Guesses that are in the cache behind the text."""

    @property
    def held_tokens(self) -> int:
        """Cells it takes."""
        return self.cached + len(self.ahead)

    def agree(self, tokens: Sequence[int]) -> bool:
        """Keep of the guesses what the text, which has at least one token, has become; True: what
        is behind `cached` must be cut from the cache.

        The last token of the text is read anew if need be: guessing goes on from its logits.
        """
        held = self.held_tokens
        for guess in self.ahead:
            if self.cached >= len(tokens) or tokens[self.cached] != guess:
                break
            self.cached += 1
        self.ahead = []
        self.cached = min(self.cached, len(tokens) - 1)
        return self.cached < held


class Lack(NamedTuple):
    """What the model has of a text, what it lacks, and how many guesses are to follow."""

    held_tokens: int
    owed_tokens: int
    guesses: int


LET_GO = -1


def plan_reading(
    lacks: Sequence[Lack], *, batch_tokens: int, chunk_tokens: int, cells: int
) -> list[int]:
    """How many tokens to read of each text now; LET_GO: it is to leave the cache."""
    plan = []
    for lack in lacks:
        whole = sum(lack)
        if whole > cells:  # 1
            plan.append(LET_GO)
            continue
        cells -= whole
        take = min(lack.owed_tokens, batch_tokens)  # 2
        if lack.owed_tokens > STEP_TOKENS:  # 3
            take = min(take, chunk_tokens)
            chunk_tokens -= take
        batch_tokens -= take
        plan.append(take)
    return plan
