"""The cheapest set of residents to drop so that a model may come: the search alone.

What one eviction weighs: its configured cost x how lately the model was used x how long its reload
takes. Lateness is 1 / (1 + idle minutes): 1 just now, a half after a minute, a tenth after nine;
it never reaches 0, as a half-life would after a night, so that of models unused for days too the
least harmful is found.

Dropping more never makes a set worse at making room, nor less allowed. So one largest allowed set
at a time, that of the cheapest outsiders first, is searched depth-first, cheapest memory first,
under the bound that memory could be had in fractions of models (the relaxed knapsack), with the
greedy answer as the first to beat.

Up to EXACT residents that may leave, the search runs to its end. With more, it stops after STEPS
steps (models that differ in their use let it end long before) and takes the best it has, less
those who would leave in vain. Steps are counted, not timed: the same question has the same answer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

from services.scheduler.core.sets import Rules

EXACT = 16
STEPS = 5_000
_GREEDY_SETS = 4
"""The greedy answer is sought in so many of the largest allowed sets, the cheapest."""
UNIT = 1_000_000
"""Weights are compared in whole millionths: sums are exact, and ties are ties."""


@dataclass(frozen=True, slots=True)
class Resident:
    """A model on the device, or on its way there; one on its way out is `leaving_mib`."""

    key: str
    resident_mib: int
    peak_mib: int
    """The most one request adds while it runs."""
    eviction_cost: float
    idle_ms: int
    """Since its last use."""
    reload_ms: int
    bar: str = ""
    """Why it may not leave, to follow its name: "is pinned"; empty: it may."""

    @property
    def lateness(self) -> float:
        """1 for a model in use, towards 0 the longer it is not; never 0."""
        return 1 / (1 + max(0, self.idle_ms) / 60_000)

    @property
    def weight(self) -> int:
        """Of its eviction, in millionths; at least one, unless its eviction costs nothing."""
        if self.eviction_cost <= 0:
            return 0
        seconds = max(1, self.reload_ms) / 1_000
        return max(1, round(self.eviction_cost * self.lateness * seconds * UNIT))

    @property
    def cost(self) -> float:
        """The weight as people are told it."""
        return self.weight / UNIT


@dataclass(frozen=True, slots=True)
class Wanted:
    """What needs room."""

    key: str
    resident_mib: int
    peak_mib: int
    transient: bool = False
    """It is resident, and `resident_mib` is what one request of it adds: whoever stays is as
    allowed as before, and no other peak is kept free beside it."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is searched: sets of `items` to drop, as bit masks."""

    wanted: Wanted
    items: tuple[Resident, ...]
    """Those that may leave, cheapest memory first; one that another outdoes comes after it."""
    barred: tuple[Resident, ...]
    """Those that may not, by name; the wanted one, if resident, is not among them."""
    short_mib: int
    """What is missing before any peak."""
    least_peak_mib: int
    """The largest peak that coincides whoever leaves."""
    keeps: tuple[int, ...]
    """The largest sets of items that may stay by the rules."""

    @property
    def everybody(self) -> int:
        return (1 << len(self.items)) - 1

    def chosen(self, mask: int) -> Iterator[Resident]:
        return compress(self.items, (mask >> place & 1 for place in range(len(self.items))))

    def peak_mib(self, out: int) -> int:
        """The largest peak that coincides when these have left."""
        if self.wanted.transient:
            return 0
        staying = self.chosen(self.everybody & ~out)
        return max(self.least_peak_mib, *(one.peak_mib for one in staying), 0)

    def fits(self, out: int) -> bool:
        freed = sum(one.resident_mib for one in self.chosen(out))
        return freed >= self.short_mib + self.peak_mib(out)

    def allowed(self, out: int) -> bool:
        staying = self.everybody & ~out
        return any(not staying & ~keep for keep in self.keeps)

    def does(self, out: int) -> bool:
        return self.fits(out) and self.allowed(out)


def asked(
    wanted: Wanted, residents: Sequence[Resident], there_mib: int, rules: Rules | None
) -> Question:
    """What is to be searched when `there_mib` of headroom are there, or about to be."""
    others = sorted((one for one in residents if one.key != wanted.key), key=lambda one: one.key)
    barred = tuple(one for one in others if one.bar)
    items = tuple(sorted((one for one in others if not one.bar), key=_cheapest_memory))
    for_good = (one for one in residents if one.bar or one.key == wanted.key)
    least = max(wanted.peak_mib, *(one.peak_mib for one in for_good), 0)
    return Question(
        wanted,
        items,
        barred,
        wanted.resident_mib - there_mib,
        0 if wanted.transient else least,
        _keeps(wanted, items, barred, rules),
    )


def _cheapest_memory(one: Resident) -> tuple[float, int, int, int, int, str]:
    weight = one.weight
    price = weight / one.resident_mib if one.resident_mib > 0 else float("inf")
    return price, -one.resident_mib, weight, -one.peak_mib, -one.idle_ms, one.key


def _keeps(
    wanted: Wanted, items: Sequence[Resident], barred: Sequence[Resident], rules: Rules | None
) -> tuple[int, ...]:
    if rules is None or wanted.transient:
        return ((1 << len(items)) - 1,)
    remaining = {one.key for one in barred}
    found: dict[int, None] = {}
    for allowed in rules.largest([*remaining, *(one.key for one in items)], wanted.key):
        if remaining <= allowed:
            found[sum(1 << at for at, one in enumerate(items) if one.key in allowed)] = None
    return tuple(found)


_Worth = tuple[int, int, tuple[int, ...], tuple[str, ...]]
"""Of a set to drop, less is better: weight, evictions, minus their idle times, their names."""


class _Node(NamedTuple):
    """Where the search stands: some members are decided on, the others not yet."""

    out: int
    weight: int
    """Of those in `out`."""
    short_mib: int
    """What is missing beside a peak."""
    peak_mib: int
    """The largest of those decided to stay."""
    stays: int
    """Those that leave no more, undecided ones too: another stays that would rather leave."""


class Search:
    """Branch and bound over what to drop."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._items = question.items
        self._weights = [one.weight for one in question.items]
        self._sizes = [one.resident_mib for one in question.items]
        self._peaks = [0 if question.wanted.transient else one.peak_mib for one in question.items]
        self._outdone = [self._outdone_by(place) for place in range(len(question.items))]
        self._best = question.everybody
        self._worth_of_best = self._worth(question.everybody)
        self.steps = 0
        self.cut = False

    def answer(self) -> int | None:
        """The mask of those to drop; None if nothing helps."""
        question = self._question
        if not question.keeps or not question.fits(question.everybody):
            return None
        everybody = question.everybody
        ranked = sorted((self._weight(everybody & ~keep), keep) for keep in question.keeps)
        for _, keep in ranked[:_GREEDY_SETS]:
            self._offer(self._greedy(everybody & ~keep))
        for weight, keep in ranked:
            if weight > self._worth_of_best[0]:
                break
            self._within(keep, weight)
        return self._lessened(self._best) if self.cut else self._best

    def _within(self, keep: int, weight: int) -> None:
        """The best set that drops those outside `keep`, who weigh so much, and some inside."""
        self._members = [place for place in range(len(self._items)) if keep >> place & 1]
        self._peak_after = [0] * (len(self._members) + 1)
        for at in reversed(range(len(self._members))):
            peak = self._peaks[self._members[at]]
            self._peak_after[at] = max(peak, self._peak_after[at + 1])
        outside = self._question.everybody & ~keep
        short = self._question.short_mib - self._freed(outside)
        self._descend(0, _Node(outside, weight, short, self._question.least_peak_mib, 0))

    def _descend(self, at: int, node: _Node) -> None:
        """Decides on the members from `at` on."""
        if self._exhausted():
            return
        if node.short_mib + max(node.peak_mib, self._peak_after[at]) <= 0:
            self._offer(node.out)
            return
        least = self._least(at, node.short_mib + node.peak_mib, node.stays)
        if least is None:
            return
        if (node.weight + least, node.out.bit_count() + 1) > self._worth_of_best[:2]:
            return
        place = self._members[at]
        out, weight, short, peak, stays = node
        if not stays >> place & 1:
            weight_then = weight + self._weights[place]
            short_then = short - self._sizes[place]
            self._descend(at + 1, _Node(out | 1 << place, weight_then, short_then, peak, stays))
        peak = max(peak, self._peaks[place])
        self._descend(at + 1, _Node(out, weight, short, peak, stays | self._outdone[place]))

    def _exhausted(self) -> bool:
        self.steps += 1
        if len(self._items) > EXACT and self.steps > STEPS:
            self.cut = True
        return self.cut

    def _least(self, at: int, missing: int, stays: int) -> int | None:
        """What `missing` weighs at least, were models divisible; None if there is not as much."""
        weight = 0
        for place in self._members[at:]:
            if missing <= 0:
                break
            size = self._sizes[place]
            if stays >> place & 1 or size <= 0:
                continue
            whole = self._weights[place]
            weight += whole if size <= missing else -(-whole * missing // size)
            missing -= size
        return weight if missing <= 0 else None

    def _greedy(self, out: int) -> int:
        """Drops the cheapest memory until there is room, then takes back who left in vain."""
        for place in range(len(self._items)):
            if self._question.fits(out):
                break
            out |= 1 << place
        return self._lessened(out)

    def _lessened(self, out: int) -> int:
        """Without those who need not leave as the others do; the heaviest are asked first."""
        for place in sorted(range(len(self._items)), key=self._rank, reverse=True):
            if out >> place & 1 and self._question.does(out & ~(1 << place)):
                out &= ~(1 << place)
        return out

    def _offer(self, out: int) -> None:
        if (self._weight(out), out.bit_count()) > self._worth_of_best[:2]:
            return
        worth = self._worth(out)
        if worth < self._worth_of_best:
            self._best, self._worth_of_best = out, worth

    def _worth(self, out: int) -> _Worth:
        gone = tuple(self._question.chosen(out))
        idle = tuple(sorted(-one.idle_ms for one in gone))
        return self._weight(out), len(gone), idle, tuple(sorted(one.key for one in gone))

    def _weight(self, out: int) -> int:
        return sum(weight for place, weight in enumerate(self._weights) if out >> place & 1)

    def _freed(self, out: int) -> int:
        return sum(mib for place, mib in enumerate(self._sizes) if out >> place & 1)

    def _outdone_by(self, place: int) -> int:
        """Those after it that never leave while it stays: it weighs less, or as much and was used
        longer ago, and frees no less, of peaks too."""
        found = 0
        for other in range(place + 1, len(self._items)):
            cheaper = self._rank(place) < self._rank(other)
            smaller = self._sizes[other] <= self._sizes[place]
            if cheaper and smaller and self._peaks[other] <= self._peaks[place]:
                found |= 1 << other
        return found

    def _rank(self, place: int) -> tuple[int, int, str]:
        return self._weights[place], -self._items[place].idle_ms, self._items[place].key
