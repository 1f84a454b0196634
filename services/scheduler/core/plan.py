"""Who leaves the device so that a model may come: the cheapest that makes room, in words too.

Needed is what the wanted model takes plus the largest transient peak of one request that may then
coincide: of the wanted model and of all who stay. A request of a resident model that needs memory
for itself (`Wanted.transient`) needs that alone: it is the peak that coincides.

The answer is, of all sets of residents that may leave, the one of the least weight that makes room
and leaves an allowed set (core/sets.py); of equal ones that of fewest evictions, then of the least
recently used, then by name. Nobody leaves in vain: without any one of the evictions the others
would not do. How it is found, and what an eviction weighs: core/eviction.py.

Who may leave at all is the caller's decision (`Resident.bar`), and so is doing it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.scheduler.core.eviction import Question, Resident, Search, Wanted, asked
from services.scheduler.core.sets import Rules

__all__ = ["Eviction", "Plan", "Resident", "Wanted", "plan", "victims"]


@dataclass(frozen=True, slots=True)
class Eviction:
    """One model that leaves."""

    key: str
    freed_mib: int
    cost: float
    """What it weighs."""
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Who leaves; nobody if that is not needed, or if it would not help (not `feasible`)."""

    evictions: tuple[Eviction, ...]
    feasible: bool
    needed_mib: int
    """With those gone who leave; if not feasible, with everybody gone who may."""
    headroom_mib: int
    """What there was, without what is on its way out."""
    explanation: str


def plan(
    wanted: Wanted,
    residents: Sequence[Resident],
    headroom_mib: int,
    rules: Rules | None,
    leaving_mib: int = 0,
) -> Plan:
    """Who of `residents` (each key once, those on their way out not among them) has to leave.

    `headroom_mib` is what the broker would lease now, `leaving_mib` what is about to come back.
    """
    question = asked(wanted, residents, headroom_mib + leaving_mib, rules)
    search = Search(question)
    out = search.answer()
    words = _Words(question, headroom_mib, leaving_mib)
    if out is None:
        needed = wanted.resident_mib + question.least_peak_mib
        return Plan((), False, needed, headroom_mib, words.infeasible())
    leaving = sorted(question.chosen(out), key=lambda one: (one.weight, -one.idle_ms, one.key))
    evictions = tuple(
        Eviction(one.key, one.resident_mib, one.cost, words.why(one, out)) for one in leaving
    )
    needed = wanted.resident_mib + question.peak_mib(out)
    return Plan(evictions, True, needed, headroom_mib, words.feasible(out, evictions, search.cut))


def victims(
    wanted: Wanted,
    residents: Sequence[Resident],
    headroom_mib: int,
    rules: Rules | None,
    leaving_mib: int = 0,
) -> tuple[str, ...] | None:
    """As `plan`, without the words: who has to leave; None: it would not help."""
    question = asked(wanted, residents, headroom_mib + leaving_mib, rules)
    out = Search(question).answer()
    return None if out is None else tuple(one.key for one in question.chosen(out))


class _Words:
    """Says what was weighed, and why it came out so."""

    def __init__(self, question: Question, headroom_mib: int, leaving_mib: int) -> None:
        self._question = question
        self._headroom_mib = headroom_mib
        self._leaving_mib = leaving_mib

    def why(self, one: Resident, out: int) -> str:
        """Why this one leaves among those in `out`."""
        if self._forbidden(one, out):
            return f"the sets do not let it live beside {self._question.wanted.key} and who stays"
        return f"frees {_mib(one.resident_mib)} at a weight of {_figure(one.cost)}"

    def feasible(self, out: int, evictions: Sequence[Eviction], cut: bool) -> str:
        if not evictions:
            return self._paragraphs(self._need(out), "Nobody has to leave: there is room.")
        names = _listed([one.key for one in evictions])
        weight = _figure(sum(one.cost for one in evictions))
        verb = "leave" if len(evictions) > 1 else "leaves"
        found = "no lighter one was found that would do" if cut else "no lighter one would do"
        return self._paragraphs(
            self._need(out), self._table(out), f"{names} {verb}, at a weight of {weight}: {found}."
        )

    def infeasible(self) -> str:
        question = self._question
        need = self._need(question.everybody)
        if not question.keeps:
            barred = _listed([f"{one.key} (which {one.bar})" for one in question.barred])
            why = f"Nobody leaves: the sets do not let {question.wanted.key} live beside {barred}."
        elif not question.items and question.barred:
            barred = "; ".join(f"{one.key} {one.bar}" for one in question.barred)
            why = f"Nothing can leave: {barred}."
        elif not question.items:
            why = "Nothing can leave: nobody else is resident."
        else:
            missing = _mib(self._missing(question.everybody))
            names = _listed([one.key for one in question.items])
            why = f"Nobody leaves: even without {names}, {missing} would be missing"
            why += "".join(f"; {one.key} {one.bar}" for one in question.barred) + "."
        return self._paragraphs(need, self._table(0), why)

    def _need(self, out: int) -> str:
        question = self._question
        wanted = question.wanted
        if wanted.transient:
            need = f"A request of {wanted.key} needs {_mib(wanted.resident_mib)}."
        else:
            peak = question.peak_mib(out)
            need = (
                f"{wanted.key} needs {_mib(wanted.resident_mib + peak)}: {wanted.resident_mib:,}"
                f" for itself and {peak:,} for the largest peak beside it."
            )
        there = f"{_mib(self._headroom_mib)} are there"
        if self._leaving_mib:
            there += f", {_mib(self._leaving_mib)} are on their way"
        missing = question.short_mib + question.peak_mib(out)
        return f"{need} {there}{f'; {_mib(missing)} are missing' if missing > 0 else ''}."

    def _missing(self, out: int) -> int:
        question = self._question
        freed = sum(one.resident_mib for one in question.chosen(out))
        return question.short_mib + question.peak_mib(out) - freed

    def _forbidden(self, one: Resident, out: int) -> bool:
        return not self._question.allowed(out & ~(1 << self._question.items.index(one)))

    def _table(self, out: int) -> str:
        question = self._question
        if not question.items and not question.barred:
            return ""
        rows: list[tuple[str, ...]] = [
            ("model", "frees MiB", "peak MiB", "cost x lateness x reload = weight", "")
        ]
        ranked = sorted(
            enumerate(question.items), key=lambda at: (not out >> at[0] & 1, at[1].weight, at[0])
        )
        rows += [_row(one, self._verdict(place, out)) for place, one in ranked]
        rows += [_row(one, one.bar) for one in question.barred]
        return _aligned(rows)

    def _verdict(self, place: int, out: int) -> str:
        question = self._question
        if out >> place & 1:
            forbidden = self._forbidden(question.items[place], out)
            return "leaves: the sets require it" if forbidden else "leaves"
        if not out:
            return "could leave"
        alone = question.does(1 << place)
        return "stays: weighs no less" if alone else "stays: alone it would not do"

    @staticmethod
    def _paragraphs(*texts: str) -> str:
        return "\n".join(text for text in texts if text)


def _row(one: Resident, verdict: str) -> tuple[str, ...]:
    weight = (
        f"{_figure(one.eviction_cost)} x {_figure(one.lateness)} x"
        f" {_figure(one.reload_ms / 1_000)} s = {_figure(one.cost)}"
    )
    return one.key, f"{one.resident_mib:,}", f"{one.peak_mib:,}", weight, verdict


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *figures, verdict in rows:
        cells = [name.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(figures, widths[1:], strict=False)]
        lines.append("  ".join([*cells, verdict]).rstrip())
    return "\n".join(f"  {line}" for line in lines)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _mib(mib: int) -> str:
    return f"{mib:,} MiB"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
