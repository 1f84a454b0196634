"""Who goes first, as far as the judge can tell: virtual time in bounds, first arrival, soft caps.

A key's unfinished runs have been charged to it we know not what, so its virtual time lies between
two bounds; when nothing of it runs they meet. `test_fairness` measures what comes of it.
"""

from dataclasses import dataclass

from tests.deep.admission_state import MAYBE, NO, YES, Followed, Span, Waiter


@dataclass
class Fair(Followed):
    """Order within a tier."""

    # -- fairness ----------------------------------------------------------------------------

    def _surely_first(self, one: Waiter, other: Waiter) -> bool:
        """0b: `one` surely goes before `other` of the same tier."""
        if one.order[0] == other.order[0] and (one.moved or other.moved):
            return False
        rivals = one.model == other.model and one.key != other.key
        if rivals and self._capped(one) == NO and self._capped(other) == YES:
            return True
        if self._capped(one) != NO and (one.key != other.key or one.model != other.model):
            return False
        if one.key == other.key:
            return one.order < other.order
        mine, theirs = self._time(one.key), self._time(other.key)
        if mine[1] < theirs[0] - 1e-6:
            return True
        fresh = mine == theirs and mine[0] == mine[1]
        untouched = not (self._span(one.key).charged or self._span(other.key).charged)
        firsts = self._first_of(one) < self._first_of(other)
        return fresh and untouched and one.order < other.order and firsts

    def _first_of(self, waiter: Waiter) -> tuple[int, int]:
        return min(w.order for w in self.waiters if w.key == waiter.key and w.tier == waiter.tier)

    def _capped(self, waiter: Waiter) -> int:
        """Whether its key is at its soft cap on its model while another key waits for it."""
        cap = self.settings.fairness.soft_inflight
        if not cap:
            return NO
        same = [h for h in self.held if h.model == waiter.model and h.key == waiter.key]
        aside = sum(
            w.asking_ms is not None and w.model == waiter.model and w.key == waiter.key
            for w in self.waiters
        )
        if len(same) + aside < cap:
            return NO
        return YES if len([h for h in same if h.cost and not h.adopted]) >= cap else MAYBE

    def _span(self, key: str) -> Span:
        return self.spans.setdefault(key, Span())

    def _weight(self, key: str) -> float:
        fairness = self.settings.fairness
        return fairness.weights.get(key, fairness.default_weight)

    def _time(self, key: str) -> tuple[float, float]:
        """The bounds of a key's virtual time: its unfinished runs are charged we know not what."""
        span, weight = self._span(key), self._weight(key)
        lo, hi = span.lo, span.hi
        for held in self.held:
            if held.key == key and not held.adopted:
                hi += held.cost * held.lane.max_run_ms / weight
        for waiter in self.waiters:
            if waiter.key == key and waiter.asking_ms is not None:  # perhaps charged already
                hi += waiter.cost * waiter.lane.max_run_ms / weight
        if any(h.adopted for h in self.held) and key == "":
            hi = float("inf")
        return lo, hi

    def _lift(self, key: str) -> None:
        """4: a key that had nothing waiting or running starts at the least of the active ones."""
        span = self._span(key)
        surely = {w.key for w in self.waiters if w.plain}
        surely |= {h.key for h in self.held if h.cost and not h.adopted}
        maybe = surely | {w.key for w in self.waiters} | {h.key for h in self.held}
        if key in surely:
            return
        if self.now - span.idle_since_ms >= self.settings.fairness.idle_ttl_ms:
            span.lo = 0.0
        others = [self._time(k) for k in surely]
        doubted = [self._time(k) for k in maybe if k != key]
        if others:
            span.lo = max(span.lo, min(lo for lo, _ in others + doubted))
            span.hi = max(span.hi, min(hi for _, hi in others))
            span.charged |= any(self._span(k).charged for k in surely)
        else:  # nobody to start beside, or only perhaps: no later than where anybody is
            span.hi = max(span.hi, *(self._time(k)[1] for k in list(self.spans)))
        if key in maybe and others:
            span.lo = min(span.lo, self._span(key).lo)
