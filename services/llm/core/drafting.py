"""Guessing ahead by looking back: prompt lookup with a governor. Pure.

The longest run of tokens that ends the text so far, from `MOST_RUN` down to `LEAST_RUN`, is looked
up in what came before; what followed it there is the guess (prompt lookup decoding, Saxena 2023). A
guess changes no answer: a token is kept only when the sampler chooses it by itself, and what a hit
saves is a decode step.

A request whose guesses keep missing pays for wider steps and gets nothing. The governor stops its
guessing after `PATIENCE` misses in a row, and probes again after `PROBE_TOKENS` tokens; every probe
that misses doubles the wait, up to `MOST_WAIT_TOKENS`.
"""

from collections.abc import Sequence

LEAST_RUN = 2
MOST_RUN = 4
PATIENCE = 3
PROBE_TOKENS = 16
MOST_WAIT_TOKENS = 256


class Lookup:
    """Where each run of `LEAST_RUN` tokens last ended; fed with the text as it grows."""

    def __init__(self) -> None:
        self._seen = 0
        self._ends: dict[tuple[int, ...], list[int]] = {}

    def guess(self, tokens: Sequence[int], most: int) -> list[int]:
        """At most `most` tokens that may follow `tokens`; none where nothing is alike."""
        self._learn(tokens)
        size = len(tokens)
        if most <= 0 or size <= LEAST_RUN:
            return []
        best, best_run = -1, LEAST_RUN - 1
        for end in reversed(self._ends.get(tuple(tokens[size - LEAST_RUN :]), ())):
            run = _common_run(tokens, end)
            if run > best_run:
                best, best_run = end, run
            if run >= MOST_RUN:
                break
        return list(tokens[best : best + most]) if best >= 0 else []

    def _learn(self, tokens: Sequence[int]) -> None:
        # The run that ends the text itself is learnt when something follows it.
        for end in range(max(self._seen, LEAST_RUN), len(tokens)):
            places = self._ends.setdefault(tuple(tokens[end - LEAST_RUN : end]), [])
            places.append(end)
            del places[:-_KEPT_PLACES]
        self._seen = max(self._seen, len(tokens))


_KEPT_PLACES = 8


def _common_run(tokens: Sequence[int], end: int) -> int:
    """How many tokens before `end` are those that end the text; at most MOST_RUN."""
    size, run = len(tokens), 0
    while run < min(MOST_RUN, end) and tokens[end - 1 - run] == tokens[size - 1 - run]:
        run += 1
    return run


class Tally:
    """What the guesses of all requests have come to."""

    __slots__ = ("accepted_tokens", "drafted_tokens")

    def __init__(self) -> None:
        self.drafted_tokens = self.accepted_tokens = 0

    @property
    def saved_calls(self) -> int:
        """An accepted token takes no decode step of its own."""
        return self.accepted_tokens


class Governor:
    """Says how many tokens to guess, for one request; what came of it is added to `tally`."""

    def __init__(self, draft_tokens: int, tally: Tally | None = None) -> None:
        self._draft_tokens = draft_tokens
        self._tally = tally if tally is not None else Tally()
        self._misses = 0
        self._wait_tokens = 0
        self._next_wait = PROBE_TOKENS

    def allowed(self) -> int:
        """Tokens to guess now; 0: not at present."""
        return 0 if self._wait_tokens > 0 else self._draft_tokens

    def judge(self, drafted: int, accepted: int) -> None:
        """A step is over: `drafted` of its rows were guesses, `accepted` of them right."""
        self._tally.drafted_tokens += drafted
        self._tally.accepted_tokens += accepted
        if drafted == 0:
            self._wait_tokens = max(0, self._wait_tokens - 1)
            return
        if accepted:
            self._misses, self._next_wait = 0, PROBE_TOKENS
            return
        self._misses += 1
        if self._misses >= PATIENCE:
            self._misses = PATIENCE - 1  # one miss of a probe is enough
            self._wait_tokens = self._next_wait
            self._next_wait = min(2 * self._next_wait, MOST_WAIT_TOKENS)
