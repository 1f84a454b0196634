"""Random histories of the admission core, each decision judged by a dumb oracle.

Callers of every kind arrive and leave, engines answer or do not, models come, fail and go,
leases are granted, denied and forgotten, lanes are held, time passes, the scheduler is killed.
After each step the oracle says whether exactly what had to be granted and refused was, in the
right order (`admission_oracle`), and at the end everything must be back.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from services.scheduler.core.values import Request, State, Tier
from tests.deep.admission_stage import KEYS, MODELS, Setup
from tests.deep.admission_world import AdmissionWorld
from tests.deep.history import PATIENCE, histories

pytestmark = PATIENCE

PICK = st.integers(0, 30)
KEY = st.sampled_from(tuple(MODELS))
TIER = st.sampled_from(tuple(Tier))
SETUPS = st.builds(
    Setup,
    permits=st.integers(1, 6),
    keyed=st.booleans(),
    soft_inflight=st.sampled_from((0, 0, 1, 2)),
    short_queues=st.booleans(),
    promote=st.booleans(),
    peaks=st.booleans(),
    places=st.sampled_from((4, 1, 2)),
    replicas=st.booleans(),
)
ANSWERS = st.sampled_from(("granted", "granted", "denied", "unanswered", "never"))
ACCIDENTS = ("again", "lose", "report", "drop", "unload", "force", "gone", "stay")
REPORTS = st.sampled_from(
    ("ready", "ready", "ready", "twice", "half", "loading", "draining", "failed", "cold")
)


class AdmissionMachine(RuleBasedStateMachine):
    """One history; every rule is one event, or several that come together."""

    world: AdmissionWorld

    @initialize(setup=SETUPS, ready=st.sampled_from((31, 31, 27, 15, 30, 3, 0)))
    def begin(self, setup: Setup, ready: int) -> None:
        self.broken = False
        self._guarded(self._begin, setup, ready)

    def _begin(self, setup: Setup, ready: int) -> None:
        self.world = AdmissionWorld(setup)
        for bit, key in enumerate(MODELS):
            self.world.report(key, "ready" if ready >> bit & 1 else "cold")
        if setup.replicas:
            self.world.report("m0", "twice")
        self.world.ready()

    def _guarded(self, act: Callable[..., None], *args: Any, **named: Any) -> None:
        """Do not tear down what is broken already."""
        try:
            act(*args, **named)
        except BaseException:
            self.broken = True
            raise

    def _arrive(self, tier: Tier, model: str, key: int = 0, **more: Any) -> None:
        name = self.world.fresh("r")
        fair = KEYS[key % len(KEYS)] if self.world.setup.keyed else ""
        self._guarded(
            self.world.arrive, Request(name, model, tier, self.world.now, key=fair, **more)
        )

    # -- callers -----------------------------------------------------------------------------

    @rule(tier=TIER, model=KEY, key=PICK)
    def arrive(self, tier: Tier, model: str, key: int) -> None:
        self._arrive(tier, model, key)

    @rule(tiers=st.lists(TIER, min_size=1, max_size=4), model=KEY, key=PICK)
    def arrive_together(self, tiers: list[Tier], model: str, key: int) -> None:
        for step, tier in enumerate(tiers):
            self._arrive(tier, model, key + step)

    @rule(tier=TIER, model=KEY, key=PICK, lane=st.sampled_from(("image", "train", "whole", "chat")))
    def arrive_in_lane(self, tier: Tier, model: str, key: int, lane: str) -> None:
        self._arrive(tier, model, key, lane=lane)

    @rule(tier=TIER, model=st.sampled_from(("m0", "m2")))
    def try_acquire(self, tier: Tier, model: str) -> None:
        self._arrive(tier, model, try_acquire=True)

    @rule(tier=TIER, model=KEY, key=PICK, what=st.sampled_from(("load", "peak", "least", "whom")))
    def arrive_specially(self, tier: Tier, model: str, key: int, what: str) -> None:
        """Only wants a load; brings its own peak; names a model that nobody has."""
        if what == "load":
            self._arrive(tier, model, load_only=True)
        elif what == "whom":
            self._arrive(tier, "nobody", key, lane="chat")
        else:
            least = 100 if what == "least" else 0
            self._arrive(tier, model, key, preferred_mib=300, minimum_mib=least)

    @precondition(lambda self: self.world.runs)
    @rule(parent=PICK, model=KEY)
    def arrive_under_parent(self, parent: int, model: str) -> None:
        name = _nth(sorted(self.world.runs), parent)
        held = self.world.judge.permit(name)
        self._arrive(held.tier if held else Tier.FREE, model, parent=name)

    @precondition(lambda self: self.world.requests)
    @rule(who=PICK)
    def give_up(self, who: int) -> None:
        self._guarded(self.world.leave, _nth(list(self.world.requests), who))

    # -- engines -----------------------------------------------------------------------------

    def _held(self, **wanted: bool) -> list[str]:
        """Live permits whose run is as wanted."""
        return [
            name
            for name in self.world.core.permits
            if all(getattr(self.world.runs[name], k) == v for k, v in wanted.items())
        ]

    @precondition(lambda self: self._held(started=False, over=False))
    @rule(who=PICK)
    def start(self, who: int) -> None:
        self._guarded(self.world.start, _nth(self._held(started=False, over=False), who))

    @precondition(lambda self: self._held(started=True, over=False))
    @rule(who=PICK, heard=st.sampled_from((True, True, False)))
    def end(self, who: int, heard: bool) -> None:
        name = _nth(self._held(started=True, over=False), who)
        self._guarded(self.world.end if heard else self.world.end_unheard, name)

    @precondition(lambda self: self._held(open=True))
    @rule(who=PICK)
    def leave_running(self, who: int) -> None:
        self._guarded(self.world.leave, _nth(self._held(open=True), who))

    @precondition(lambda self: self._held(over=False, open=True))
    @rule(who=PICK, run_ms=st.sampled_from((0, 100, 3_000)))
    def run_through(self, who: int, run_ms: int) -> None:
        """The usual way: started, over, left."""
        name = _nth(self._held(over=False, open=True), who)
        self._guarded(self.world.start, name)
        self._guarded(self.world.wait, run_ms)
        self._guarded(self.world.end, name)
        self._guarded(self.world.leave, name)

    @precondition(lambda self: self._held(over=False, open=True))
    @rule()
    def all_run_through(self) -> None:
        """Everybody who runs comes to an end, the longest running first."""
        for name in self._held(over=False, open=True):
            if name in self.world.core.permits:
                self._guarded(self.world.start, name)
                self._guarded(self.world.end, name)
                self._guarded(self.world.leave, name)

    @precondition(lambda self: self.world.engine_asks)
    @rule(which=PICK)
    def answer_engine(self, which: int) -> None:
        self._guarded(self.world.answer_engine, which)

    # -- models, leases, time ----------------------------------------------------------------

    @rule(key=KEY, kind=REPORTS)
    def report(self, key: str, kind: str) -> None:
        self._guarded(self.world.report, key, kind)

    @precondition(lambda self: self.world.lease_asks)
    @rule(which=PICK, answer=ANSWERS)
    def answer_lease(self, which: int, answer: str) -> None:
        self._guarded(self.world.answer_lease, which, answer)

    @precondition(lambda self: self.world.transient_asks)
    @rule(which=PICK, answer=ANSWERS)
    def answer_transient(self, which: int, answer: str) -> None:
        self._guarded(self.world.answer_transient, which, answer)

    @precondition(lambda self: self.world.loads)
    @rule(which=PICK, ends=st.sampled_from(("loading", "ready", "ready", "failed", "nothing")))
    def go_on_loading(self, which: int, ends: str) -> None:
        key = _nth(self.world.loads, which)
        if ends != "nothing":
            self._guarded(self.world.report, key, "loading")
        if ends in ("ready", "failed"):
            self._guarded(self.world.report, key, ends)
        if ends != "loading":
            failure = "broke" if ends == "failed" else None
            self._guarded(self.world.end_load, self.world.loads.index(key), failure)

    @rule(wait_ms=st.sampled_from((1, 250, 500, 1_000, 5_000, 11_000, 31_000)))
    def wait(self, wait_ms: int) -> None:
        self._guarded(self.world.wait, wait_ms)

    # -- people and accidents ----------------------------------------------------------------

    @rule(lane=st.sampled_from(("chat", "image", "train")), who=st.sampled_from(("x", "y")))
    def hold_or_release(self, lane: str, who: str) -> None:
        held = (lane, who) in self.world.judge.holds
        self._guarded(self.world.release_hold if held else self.world.hold, lane, who)

    @rule(
        what=st.sampled_from(
            ("again", "lose", "report", "drop", "unload", "force", "gone", "stay")
        ),
        which=PICK,
    )
    def accident(self, what: str, which: int) -> None:
        key = _nth(tuple(MODELS), which)
        match what:
            case "again":
                self._repeat_what_is_over(which)
            case "lose":
                self._guarded(self.world.lose, key)
            case "report":
                self._guarded(self.world.snapshot, key)
            case "drop":
                self._guarded(self.world.remove, key)
                self._guarded(self.world.snapshot, key, known=False)
            case "unload" | "force":
                if self.world.facts[key].state is State.READY:
                    self._guarded(self.world.unload, key, force=what == "force")
            case _ if self.world.leaving:
                key = _nth(sorted(self.world.leaving), which)
                if what == "gone":
                    self._guarded(self.world.report, key, "cold")
                self._guarded(self.world.end_unload, key)

    def _repeat_what_is_over(self, which: int) -> None:
        """Late words about what has ended change nothing."""
        permits, ended = self.world.core.permits, self.world.judge.ended
        over = [n for n in self.world.runs if n not in permits and n in ended]
        if over:
            act = self.world.start if which % 2 else self.world.end
            self._guarded(act, _nth(over, which))

    @rule(order=st.permutations(range(len(MODELS) + 6)), silent=st.integers(0, 9))
    def restart(self, order: list[int], silent: int) -> None:
        """Services report and callers come back, all mixed up; then granting begins."""
        self._guarded(self._restart, order, silent)

    def _restart(self, order: list[int], silent: int) -> None:
        world = self.world
        back = list(world.requests.values())
        world.restart()
        steps = [partial(world.snapshot, key, known=False) for key in MODELS]
        steps += [partial(world.arrive, request) for request in back]
        first = [steps[i] for i in order if i < len(steps)]
        for step in first + steps[len(order) :]:
            step()
        world.wait(0)
        world.reconcile() if silent == 0 else world.ready()

    def teardown(self) -> None:
        if hasattr(self, "world") and not self.broken:
            self.world.finish()


def _nth(things: Sequence[str], pick: int) -> str:
    return things[pick % len(things)]


TestAdmission = AdmissionMachine.TestCase
TestAdmission.settings = histories(usual=150, deep=10_000, steps=40)
