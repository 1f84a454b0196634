"""Loads take turns, each in a process of its own: what disturbs the machine hits all of them.

A process of its own has its own memory, so that a crowd of 100,000 is not in the way when the
collector of another load looks for garbage.
"""

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple

from bench.scheduler.loads import LOADS
from bench.scheduler.script import Case

GC_THRESHOLD = (20_000, 200, 100)
"""As the scheduler's process sets it."""
_ANSWER_S = 120.0


class Turn(NamedTuple):
    """What one pair took, in microseconds."""

    cpu_us: float
    wall_us: float


class Racer(NamedTuple):
    """A load under a case, and how many pairs a turn of it has."""

    load: str
    case: Case
    pairs: int


def race(
    racers: Sequence[Racer], *, rounds: int, done: Callable[[], None]
) -> Mapping[Racer, list[Turn]]:
    """`rounds` turns of each, after one that does not count."""
    turns: dict[Racer, list[Turn]] = {racer: [] for racer in racers}
    with ExitStack() as stack:
        ends = {racer: stack.enter_context(_started(racer)) for racer in racers}
        for number in range(-1, rounds):
            first = number % len(racers)
            for racer in (*racers[first:], *racers[:first]):
                turn = _ask(ends[racer], racer.pairs)
                if number >= 0:
                    turns[racer].append(turn)
            done()
    return turns


def _ask(end: Connection, pairs: int) -> Turn:
    end.send(pairs)
    if not end.poll(_ANSWER_S):
        raise RuntimeError(f"{pairs} pairs took more than {_ANSWER_S:g} s")
    cpu_s, wall_s = end.recv()
    return Turn(1e6 * cpu_s / pairs, 1e6 * wall_s / pairs)


@contextmanager
def _started(racer: Racer) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe()
    process = context.Process(target=_serve, args=(its, racer.load, racer.case), daemon=True)
    process.start()
    its.close()
    try:
        yield mine
    finally:
        mine.close()  # it ends when nobody asks any more
        process.join()


def _serve(end: Connection, name: str, case: Case) -> None:
    gc.set_threshold(*GC_THRESHOLD)
    load = LOADS[name](case)
    while True:
        try:
            pairs: int = end.recv()
        except EOFError:
            return
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        load.pairs(pairs)
        end.send((time.process_time() - cpu_s, time.perf_counter() - wall_s))
