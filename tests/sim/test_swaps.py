"""How often the scheduler swaps models: against FIFO, against the optimum, over a simulated day.

The real core and the real ledger decide in the world of `cohabit simulate`. `pytest -s` shows the
figures. `linger_ms` is what saves loads: an idle model that was just used is kept a little from a
request of its tier that needs its memory, which collates what comes in bursts.
"""

import os
import random
import sys
import time
from itertools import accumulate
from pathlib import Path

import pytest

from cli.simulation import synth
from cli.simulation.configured import setup_of
from cli.simulation.fifo import Fifo
from cli.simulation.figures import figures
from cli.simulation.kinds import Kind
from cli.simulation.policy import Policy
from cli.simulation.record import End, Fate, Record
from cli.simulation.setup import CardSpec, Profile, Setup
from cli.simulation.trace import Line
from cli.simulation.world import World
from services.broker.core import Floors
from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.settings import Settings
from services.scheduler.core.values import Lane
from tests.sim.offline_optimum import Bounds, fewest_loads

DEEP = os.environ.get("COHABIT_DEEP") == "1"
ONE_5090 = Path(__file__).parents[2] / "examples" / "one-5090.yaml"


def lane_of(name: str) -> Lane:
    return Lane(name, 1, wait_ms=300_000, max_run_ms=600_000)


def tell(figure: str) -> None:
    sys.stdout.write(f"\n{figure}")


def replay(setup: Setup, policy: Policy, trace: list[Line]) -> Record:
    record = World(setup, policy).replay(trace)
    assert record.out_of_memory == 0
    assert len(record.fates) == len(trace)
    return record


# -- against FIFO --------------------------------------------------------------------------------

DELAY_MS, LINGER_MS = 30_000, 20_000


def crowded() -> Setup:
    """Twelve models of which two to four fit."""
    profiles = [
        Profile(
            f"model-{number:02}",
            "chat",
            resident_mib=3_000 + 1_000 * (number % 6),
            load_ms=800 + 100 * (number % 6),
            unload_ms=100,
            places=4,
            work_ms=300 + 100 * (number % 4),
        )
        for number in range(12)
    ]
    settings = Settings(permits=4, lane_of=lane_of, max_swap_delay_ms=DELAY_MS, linger_ms=LINGER_MS)
    card = CardSpec(16_384, Floors(128, 256, 384, 512))
    return Setup({profile.key: profile for profile in profiles}, card, settings)


def interactive(lines: list[Line]) -> list[Line]:
    """Background waits until nothing else does, however long: it has no bound to be broken."""
    return [line for line in lines if line.tier != "background"]


def swap_needs_ms(setup: Setup) -> int:
    """What draining and loading need at most: what runs ends, its model leaves, the load.

    Twice: a load that is under way is not recalled, and whom it was for is served first. And a
    second for the questions to the broker.
    """
    profiles = setup.profiles.values()
    run_ms = max(round(profile.work_ms * 1.3) for profile in profiles)
    return 2 * max(p.load_ms + p.unload_ms + run_ms for p in profiles) + 1_000


def swap_waits(record: Record) -> list[tuple[Fate, int]]:
    """Requests that waited for a load of their model, and when it was ready."""
    ready: dict[str, list[int]] = {}
    for load in record.loads:
        ready.setdefault(load.model, []).append(load.ready_ms)
    waits = []
    for fate in record.fates:
        until = fate.granted_ms or 0
        mine = [at for at in ready.get(fate.served_by, ()) if fate.arrived_ms < at <= until]
        if mine:
            waits.append((fate, mine[-1]))
    return waits


def lateness_ms(record: Record, delay_ms: int) -> int:
    """The longest that a swap was due and had not ended.

    A request's swap is due when the request has waited `max_swap_delay`, and no more urgent one (of
    a higher tier, or of its own and earlier) waits for a swap any more.
    """
    waits = swap_waits(record)
    late = []
    for fate, ready_ms in waits:
        ahead = [
            other_ready
            for other, other_ready in waits
            if (-other.tier, other.arrived_ms) < (-fate.tier, fate.arrived_ms)
            and other.arrived_ms < ready_ms
            and other_ready <= ready_ms
        ]
        due_ms = max(fate.arrived_ms + delay_ms, *ahead, 0)
        late.append(ready_ms - due_ms)
    return max(late)


@pytest.mark.parametrize(("kind", "hours"), [(Kind.BURSTY, 0.2), (Kind.DIURNAL, 0.4)])
def test_at_most_half_the_swaps_of_fifo_and_none_later_than_its_bound(
    kind: Kind, hours: float
) -> None:
    setup = crowded()
    trace = interactive(synth.trace(kind, setup, synth.Wish(2_200, hours, seed=1)))

    ours = replay(setup, SchedulerCore(setup.settings), trace)
    rival = replay(setup, Fifo(setup.settings), trace)

    show(kind, setup, ours, rival)
    assert {fate.end for fate in ours.fates + rival.fates} == {End.DONE}
    assert 2 * len(ours.loads) <= len(rival.loads)
    assert lateness_ms(ours, DELAY_MS) <= swap_needs_ms(setup)


def test_the_adversarial_trace_beside_them() -> None:
    setup = crowded()
    wish = synth.Wish(1_000, 0.5, seed=1)
    trace = interactive(synth.trace(Kind.ADVERSARIAL, setup, wish))

    ours = replay(setup, SchedulerCore(setup.settings), trace)
    rival = replay(setup, Fifo(setup.settings), trace)

    show(Kind.ADVERSARIAL, setup, ours, rival)
    assert all(fate.end is not None for fate in ours.fates)
    assert len(ours.loads) <= len(rival.loads)


def show(kind: Kind, setup: Setup, ours: Record, rival: Record) -> None:
    for name, record in (("cohabit", ours), ("fifo", rival)):
        sums = figures(name, setup, record, 1.0)
        worst_s = max(waits.worst_s or 0 for waits in sums.tiers)
        tell(
            f"{kind}: {name}: {sums.loads} loads, {sums.ends['done']} of {sums.requests} done, "
            f"worst wait {worst_s:.1f} s, swaps late by {lateness_ms(record, DELAY_MS)} ms"
        )


# -- against the optimum -------------------------------------------------------------------------

SMALL = Bounds(slots=2, load_ms=4_000, unload_ms=300, work_ms=2_000, wait_ms=15_000 + 6_300)
"""A request of the optimum waits at most as long as ours may: `max_swap_delay`, and what one swap
needs: running work ends, its model leaves, the load."""


def small_trace(seed: int) -> list[tuple[float, str]]:
    """12 requests in bursts of one to four within 4 s, ten seconds apart in the mean; 4 models by
    Zipf's law, drawn for every request anew."""
    chance = random.Random(seed)
    models = ["a", "b", "c", "d"]
    chance.shuffle(models)
    weights = list(accumulate(1 / rank for rank in range(1, 5)))
    requests: list[tuple[float, str]] = []
    burst_s = 0.0
    while len(requests) < 12:
        burst_s += chance.expovariate(1 / 10)
        for _ in range(chance.randint(1, 4)):
            model = chance.choices(models, cum_weights=weights)[0]
            requests.append((round(burst_s + chance.uniform(0, 4), 3), model))
    return sorted(requests[:12])


def small_setup() -> Setup:
    """One card with room for two of four models."""
    profiles = {
        key: Profile(
            key,
            "chat",
            resident_mib=1_000,
            load_ms=SMALL.load_ms,
            unload_ms=SMALL.unload_ms,
            places=4,
            work_ms=SMALL.work_ms,
        )
        for key in "abcd"
    }
    settings = Settings(permits=4, lane_of=lane_of, max_swap_delay_ms=15_000, linger_ms=10_000)
    return Setup(profiles, CardSpec(2_000, Floors(0, 0, 0, 0)), settings)


def test_at_most_a_quarter_more_loads_than_the_offline_optimum() -> None:
    setup = small_setup()
    ours = best = 0
    for seed in range(200):
        requests = small_trace(seed)
        least = fewest_loads([(round(t * 1000), model) for t, model in requests], SMALL)
        assert least is not None
        trace = [Line(t, model, key=f"key-{model}") for t, model in requests]
        record = replay(setup, SchedulerCore(setup.settings), trace)
        assert {fate.end for fate in record.fates} == {End.DONE}
        assert len(record.loads) >= least
        ours, best = ours + len(record.loads), best + least
    tell(f"200 small traces: {ours} loads, optimum {best}: {ours / best:.3f}")
    assert ours <= 1.25 * best


@pytest.mark.parametrize(
    ("requests", "slots", "least"),
    [
        ([(0, "a"), (100, "b"), (200, "a"), (300, "b")], 1, 2),
        ([(0, "a"), (100, "b"), (60_000, "a"), (60_100, "b")], 1, 3),
        ([(0, "a"), (100, "b"), (60_000, "a"), (60_100, "b")], 2, 2),
        ([(0, "a"), (30_000, "b"), (60_000, "a")], 1, 3),
        ([(0, "a"), (0, "b"), (0, "c"), (0, "d")], 1, None),
    ],
)
def test_the_optimum_itself(requests: list[tuple[int, str]], slots: int, least: int | None) -> None:
    assert fewest_loads(requests, Bounds(slots, 4_000, 300, 2_000, 15_000)) == least


# -- a day ---------------------------------------------------------------------------------------


def test_a_simulated_day_of_36_models() -> None:
    setup = setup_of(ONE_5090)
    assert len(setup.profiles) == 36
    requests = 100_000 if DEEP else 2_000
    trace = synth.trace(Kind.DIURNAL, setup, synth.Wish(requests, 24, seed=1, skew=2.5))

    began = time.perf_counter()
    record = replay(setup, SchedulerCore(setup.settings), trace)
    took_s = time.perf_counter() - began

    tell(f"{requests} requests over {record.ended_ms / 3.6e6:.1f} h in {took_s:.1f} s")
    assert all(fate.end is not None for fate in record.fates)
    assert sum(fate.end is End.DONE for fate in record.fates) >= 0.95 * requests
    if DEEP:
        assert took_s < 60
