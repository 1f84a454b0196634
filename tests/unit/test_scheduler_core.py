"""Random histories of the admission core against a deliberately dumb oracle."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.values import Grant, Lane, ModelFacts, Refuse, Request, State, Tier

PERMITS = 4
COSTS = {"m": 1, "n": 2, "x": 3}
PLACES = {"m": 2, "n": 9, "x": 9}


def lane_of(name: str) -> Lane:
    return Lane(name, COSTS.get(name, 1), wait_ms=10**9, max_run_ms=10**9)


@dataclass
class Oracle:
    """Sorts everyone at every step, and looks at all of them."""

    waiting: list[tuple[int, int, str, str]] = field(default_factory=list)
    running: dict[str, tuple[str, Tier]] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)

    def settle(self) -> set[str]:
        granted = set()
        moved = True
        while moved:
            moved = False
            for entry in sorted(self.waiting):
                minus_tier, _, name, model = entry
                here = [m for m, _ in self.running.values() if m == model]
                if model not in self.ready or len(here) >= PLACES[model]:
                    continue
                used = sum(COSTS[m] for m, _ in self.running.values())
                if used + COSTS[model] > PERMITS:
                    break
                if minus_tier == -Tier.BACKGROUND and self.somebody_else():
                    break
                self.waiting.remove(entry)
                self.running[name] = (model, Tier(-minus_tier))
                granted.add(name)
                moved = True
                break
        return granted

    def somebody_else(self) -> bool:
        runs = any(tier is not Tier.BACKGROUND for _, tier in self.running.values())
        return runs or any(entry[0] != -Tier.BACKGROUND for entry in self.waiting)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.sampled_from(sorted(COSTS)), st.sampled_from(list(Tier))),
        st.tuples(st.just("finish"), st.integers(0, 30), st.none()),
        st.tuples(st.just("leave"), st.integers(0, 30), st.none()),
        st.tuples(st.just("toggle"), st.sampled_from(sorted(COSTS)), st.none()),
    ),
    max_size=60,
)


def facts(model: str, state: State) -> ModelFacts:
    return ModelFacts(model, model, state, 1, PLACES[model], model, model)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_grants_are_those_of_the_oracle(steps: list[tuple[str, object, Tier | None]]) -> None:
    core = SchedulerCore(PERMITS, lane_of, queue_limit=1000, use_within_ms=10**9)
    oracle = Oracle()
    for model in COSTS:
        core.model_changed(0, facts(model, State.COLD))
    core.reconcile(0)
    for now, (what, argument, tier) in enumerate(steps, 1):
        effects = []
        if what == "arrive":
            assert tier is not None
            name = f"r{now}"
            oracle.waiting.append((-tier, now, name, str(argument)))
            effects = core.arrive(now, Request(name, str(argument), tier, now))
        elif what == "finish" and oracle.running:
            assert isinstance(argument, int)
            name = sorted(oracle.running)[argument % len(oracle.running)]
            model, _ = oracle.running.pop(name)
            core.permit_started(now, name, model)
            effects = [*core.permit_over(now, name), *core.leave(now, name)]
        elif what == "leave" and oracle.waiting:
            assert isinstance(argument, int)
            entry = sorted(oracle.waiting)[argument % len(oracle.waiting)]
            oracle.waiting.remove(entry)
            effects = core.leave(now, entry[2])
        elif what == "toggle":
            model = str(argument)
            if any(m == model for m, _ in oracle.running.values()):
                continue  # a busy model does not leave
            oracle.ready ^= {model}
            state = State.READY if model in oracle.ready else State.COLD
            effects = core.model_changed(now, facts(model, state))
        granted = {e.permit_id for e in effects if isinstance(e, Grant)}
        assert granted == oracle.settle()
        assert not any(isinstance(e, Refuse) for e in effects)
        assert core.in_use == sum(COSTS[m] for m, _ in oracle.running.values()) <= PERMITS
        assert len(core.room) == len(oracle.waiting)


def test_memory_follows_what_waits() -> None:
    """Ten thousand that came and went leave nothing behind."""
    core = SchedulerCore(PERMITS, lane_of, queue_limit=100_000, use_within_ms=5_000)
    core.model_changed(0, facts("m", State.READY))
    core.reconcile(0)
    for n in range(10_000):
        core.arrive(n, Request(f"r{n}", "m", Tier.FREE, n))
        core.leave(n, f"r{n}")
        core.permit_over(n, f"r{n}")
    assert not core.permits
    assert len(core.room) == 0
    assert len(core.alarms._heap) <= 1_000 + 2 * len(core.alarms._current) + 1
    assert len(core.alarms._current) == 0


def test_an_alarm_that_was_cancelled_does_not_ring() -> None:
    core = SchedulerCore(PERMITS, lane_of, queue_limit=10, use_within_ms=5_000)
    core.model_changed(0, facts("m", State.READY))
    core.reconcile(0)
    core.arrive(0, Request("r", "m", Tier.FREE, 0))
    core.permit_started(1, "r", "m")
    core.permit_over(2, "r")
    core.leave(3, "r")
    assert core.tick(10**10) == []
