"""What is measured, how often, and against what: one function for each section of the report."""

import statistics
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.figures import spread
from bench.scheduler.crowd import Crowd, Finished, attend
from bench.scheduler.loads import CORE
from bench.scheduler.report import Limit, Row, Section
from bench.scheduler.rivals import ConditionDoor
from bench.scheduler.script import Case
from bench.scheduler.through_grpc import Served, bare, scheduler
from bench.scheduler.through_shell import through_shell
from bench.scheduler.turns import Racer, Turn, race
from services.scheduler.core.values import Tier

LEAST_PAIRS_PER_S = 60_000
MOST_GROWTH = 3.0
LEAST_ADMISSIONS_PER_S = 1_500

_WAITING = (100, 10_000, 100_000)
_KEYS = (1, 1_000)
_BROADCASTS = {100: 2_000, 10_000: 100, 100_000: 10}
"""Pairs of a turn, by how many wait."""
_CONNECTIONS = (1, 4)
_BARE_SLOTS = 1_000_000

Done = Callable[[], None]


# -- the core ------------------------------------------------------------------------------------


def core(rounds: int, done: Done) -> Section:
    """Pairs a second of one core, by how many wait."""
    cores = [Racer(CORE, Case(n, keys), 2_000) for keys in _KEYS for n in _WAITING]
    heaps = [Racer("bare heap", Case(n, 1), 20_000) for n in _WAITING]
    crowds = [Racer("broadcast", Case(n, 1), _BROADCASTS[n]) for n in _WAITING]
    turns = race([*cores, *heaps, *crowds], rounds=rounds, done=done)
    by_waiting = {heap.case.waiting: turns[heap] for heap in heaps}
    rows = [
        _pairs(racer, turns[racer], None if racer in heaps else by_waiting[racer.case.waiting])
        for racer in (*cores, *heaps, *crowds)
    ]
    judged = Racer(CORE, Case(10_000, 1), 2_000)
    limits = [
        Limit(
            f"core, {judged.case}: pairs/s",
            1e6 / statistics.median(turn.cpu_us for turn in turns[judged]),
            LEAST_PAIRS_PER_S,
            at_least=True,
        )
    ]
    for keys in _KEYS:
        few, many = (turns[racer] for racer in cores if racer.case in _ends(keys))
        growth = _times(many, few)
        what = f"core, {keys:,} key{'s' * (keys > 1)}: 100,000 waiting / 100"
        limits.append(Limit(what, growth, MOST_GROWTH, at_least=False, unit="x"))
    title = "core, pairs of admit and release on one core"
    return Section("core", title, "bare heap", rows, limits)


def _ends(keys: int) -> tuple[Case, Case]:
    return Case(_WAITING[0], keys), Case(_WAITING[-1], keys)


def _pairs(racer: Racer, turns: list[Turn], rival: list[Turn] | None) -> Row:
    cpu = spread([turn.cpu_us for turn in turns])
    figures = {
        "pairs/s": 1e6 / cpu.median,
        "µs CPU": cpu.median,
        "IQR": cpu.high - cpu.low,
        "µs wall": statistics.median(turn.wall_us for turn in turns),
    }
    ratio = None if rival is None else _times(turns, rival)
    keys = f", {racer.case.keys:,} key{'s' * (racer.case.keys > 1)}" if racer.load == CORE else ""
    return Row(f"{racer.load}, {racer.case.waiting:,} waiting{keys}", figures, ratio)


def _times(turns: list[Turn], rival: list[Turn]) -> float:
    pairs = zip(turns, rival, strict=True)
    return statistics.median(mine.cpu_us / its.cpu_us for mine, its in pairs)


# -- through gRPC --------------------------------------------------------------------------------


class _Round(NamedTuple):
    per_s: float
    server_us: float
    asked: float


async def grpc(rounds: int, done: Done) -> Section:
    """Admissions a second of a scheduler's process."""
    many = Crowd(callers=32, rounds=25, slots=16, tiers=(Tier.PAID, Tier.SUB, Tier.FREE))
    found: dict[tuple[str, int], list[_Round]] = {}
    async with _servers(many.slots) as servers:
        for number in range(-1, rounds):
            for connections in _CONNECTIONS:
                for name, served in servers.items():
                    slots = many.slots if name == "scheduler" else _BARE_SLOTS
                    crowd = Crowd(many.callers, many.rounds, slots, many.tiers)
                    result = await _round(served, connections, crowd)
                    if number >= 0:
                        found.setdefault((name, connections), []).append(result)
            done()
    rows = [_admissions(key, found) for key in sorted(found, reverse=True)]
    best = max(row.figures["admissions/s"] for row in rows if row.ratio is not None)
    limit = Limit("gRPC: admissions/s", best, LEAST_ADMISSIONS_PER_S, at_least=True)
    return Section("grpc", "through gRPC, 32 callers, 16 slots", "bare call", rows, [limit])


@asynccontextmanager
async def _servers(slots: int) -> AsyncIterator[dict[str, Served]]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="cohabit-bench-")))
        mine = await stack.enter_async_context(scheduler(folder / "house", slots))
        yield {"scheduler": mine, "bare call": await stack.enter_async_context(bare(folder))}


async def _round(served: Served, connections: int, crowd: Crowd) -> _Round:
    async with served.door(connections) as door:
        cpu_s, asked = served.cpu_s, served.asked
        finished = await attend(crowd, door)
        each = 1 / finished.admissions
        return _Round(
            finished.per_s, 1e6 * (served.cpu_s - cpu_s) * each, (served.asked - asked) * each
        )


def _admissions(key: tuple[str, int], found: dict[tuple[str, int], list[_Round]]) -> Row:
    name, connections = key
    mine, rival = found[key], found["bare call", connections]
    per_s = spread([one.per_s for one in mine])
    figures = {
        "admissions/s": per_s.median,
        "IQR": per_s.high - per_s.low,
        "server, µs CPU": statistics.median(one.server_us for one in mine),
        "engine asked": statistics.median(one.asked for one in mine),
    }
    pairs = zip(mine, rival, strict=True)
    ratio = statistics.median(one.server_us / its.server_us for one, its in pairs)
    title = f"{name}, {connections} connection{'s' * (connections > 1)}"
    return Row(title, figures, None if name == "bare call" else ratio)


# -- the crowd -----------------------------------------------------------------------------------


async def crowd(rounds: int, done: Done) -> Section:
    """256 callers of all tiers on 4 slots, `rounds` times each: they finish, within the budget."""
    whole = Crowd(callers=256, rounds=rounds, slots=4)
    short = Crowd(callers=256, rounds=max(2, rounds // 25), slots=4)
    rival = await attend(short, ConditionDoor(short.slots))
    done()
    async with through_shell(whole.slots) as door:
        shell = await attend(whole, door)
    done()
    with TemporaryDirectory(prefix="cohabit-bench-") as name:
        async with scheduler(Path(name) / "house", short.slots) as served, served.door(4) as way:
            began_s = served.cpu_s
            wire = await attend(short, way)
            server_s = served.cpu_s - began_s
    done()
    rows = [
        _crowd(f"scheduler's shell, 256 x {whole.rounds}", shell, rival),
        _crowd(f"through gRPC, 256 x {short.rounds}", wire, rival, server_s),
        _crowd(f"one condition, 256 x {short.rounds}", rival, None),
    ]
    most = max(shell.most_held, wire.most_held)
    limit = Limit("crowd: permits held at once", most, whole.slots, at_least=False)
    return Section("crowd", "256 callers of all tiers on 4 slots", "one condition", rows, [limit])


def _crowd(name: str, it: Finished, rival: Finished | None, server_s: float = 0.0) -> Row:
    each_us = 1e6 * (it.cpu_s + server_s) / it.admissions
    figures = {
        "seconds": it.seconds,
        "runs": float(it.admissions),
        "runs/s": it.per_s,
        "µs CPU": each_us,
        "held at most": float(it.most_held),
    }
    ratio = None if rival is None else each_us * rival.admissions / rival.cpu_s / 1e6
    return Row(name, figures, ratio)
