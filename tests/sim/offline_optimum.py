"""The fewest loads with which a small trace can be served, by somebody who knows it beforehand.

Its model of time. The card has `slots` equal slots and each model fills one. A slot takes on a
model in `load_ms`, after `unload_ms` where another one has to leave it. A resident model serves any
number of requests side by side, each for `work_ms`, and starts one as soon as both are there. It
leaves when the last request that it was kept for has ended. Each request starts at most `wait_ms`
after its arrival. There are no permits, no hops and no limits on loads side by side, so that nobody
who has those could do with fewer loads.

The search is exhaustive over plans of this form: time after time a slot is given to a model for its
next k requests, in the order of their arrival. No plan needs more: a load that begins as soon as
its slot is free is ready soonest, which harms nobody; and of two requests of one model, which run
for the same time, the later one need not be served in an earlier stay. It goes load by load through
all that can have been served with so many, and drops a state only for one in which the same
requests are served and no slot is free later.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Served = tuple[int, ...]
"""Of each model, how many of its requests are served."""
Free = tuple[int, ...]
"""When each slot's model has done, in order; -1: the slot is empty."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a plan must keep to."""

    slots: int
    load_ms: int
    unload_ms: int
    work_ms: int
    wait_ms: int


def fewest_loads(trace: Sequence[tuple[int, str]], bounds: Bounds) -> int | None:
    """Loads of the best plan for requests (arrival in ms, model); None if there is no plan."""
    models = sorted({model for _, model in trace})
    arrivals = [sorted(at for at, model in trace if model == name) for name in models]
    all_served = tuple(map(len, arrivals))
    states: dict[Served, list[Free]] = {(0,) * len(models): [(-1,) * bounds.slots]}
    loads = 0
    while states and all_served not in states:
        loads += 1
        states = _one_load_more(states, arrivals, bounds)
    return loads if states else None


def _one_load_more(
    states: dict[Served, list[Free]], arrivals: Sequence[Sequence[int]], bounds: Bounds
) -> dict[Served, list[Free]]:
    after: dict[Served, list[Free]] = {}
    for served, frees in states.items():
        for free in frees:
            for then, slots in _loads(served, free, arrivals, bounds):
                _keep(after.setdefault(then, []), slots)
    return after


def _keep(frees: list[Free], new: Free) -> None:
    """Add it unless another is at least as good; drop those to which it is."""
    if any(all(a <= b for a, b in zip(old, new, strict=True)) for old in frees):
        return
    frees[:] = [old for old in frees if not all(a <= b for a, b in zip(new, old, strict=True))]
    frees.append(new)


def _loads(
    served: Served, free: Free, arrivals: Sequence[Sequence[int]], bounds: Bounds
) -> Iterator[tuple[Served, Free]]:
    """Every state that one load more leads to."""
    for slot, free_ms in enumerate(free):
        ready = bounds.load_ms if free_ms < 0 else free_ms + bounds.unload_ms + bounds.load_ms
        for model, times in enumerate(arrivals):
            for number in range(served[model], len(times)):
                start = max(times[number], ready)
                if start - times[number] > bounds.wait_ms:
                    break  # nor can a later one be served before this one
                then = (*served[:model], number + 1, *served[model + 1 :])
                slots = (*free[:slot], start + bounds.work_ms, *free[slot + 1 :])
                yield then, tuple(sorted(slots))
