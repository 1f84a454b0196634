"""Random histories of residency: the real core, the real ledger, a card with true memory.

Requests come and go; what the core wants done is done late, in any order, or fails; engines crash,
services vanish, the broker is killed, foreign tenants take memory away. Checked after each step: no
promise that the device cannot keep but those that foreign tenants broke, nobody unloaded who may
not be, nobody delayed beyond the bound (`residency_world`). At the end of every history the world
turns kind, and then everybody must be served in bounded time, and every lease and permit be back.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from services.scheduler.core.values import State, Tier
from tests.deep.card import Engine
from tests.deep.history import PATIENCE, histories
from tests.deep.residency_rules import SIZES, Setup
from tests.deep.residency_world import ResidencyWorld

pytestmark = PATIENCE

_T = TypeVar("_T")

PICK = st.integers(0, 30)
KEY = st.sampled_from(tuple(SIZES))
TIER = st.sampled_from(tuple(Tier))
SETUPS = st.builds(
    Setup,
    permits=st.integers(1, 4),
    sets=st.sampled_from(("", "", "sets")),
    places=st.integers(1, 2),
    idle_ttl_ms=st.sampled_from((0, 0, 6_000)),
    linger_ms=st.sampled_from((0, 0, 1_000)),
    cheap=st.sampled_from(("", "a", "c")),
)


class ResidencyMachine(RuleBasedStateMachine):
    """One history; every rule is one event, or a few that come together."""

    world: ResidencyWorld

    @initialize(setup=SETUPS)
    def begin(self, setup: Setup) -> None:
        self.broken = False
        self._guarded(self._begin, setup)

    def _begin(self, setup: Setup) -> None:
        self.world = ResidencyWorld(setup)

    def _guarded(self, act: Callable[..., None], *args: Any, **named: Any) -> None:
        """Do not tear down what is broken already."""
        try:
            act(*args, **named)
        except BaseException:
            self.broken = True
            raise

    # -- callers -----------------------------------------------------------------------------

    @rule(tier=TIER, model=KEY)
    def arrive(self, tier: Tier, model: str) -> None:
        self._guarded(self.world.arrive, tier, model)

    @rule(tier=TIER, models=st.lists(KEY, min_size=2, max_size=4))
    def arrive_together(self, tier: Tier, models: list[str]) -> None:
        for model in models:
            self._guarded(self.world.arrive, tier, model)

    @rule(tier=TIER, model=KEY, how=st.sampled_from(("try", "load", "train")))
    def arrive_specially(self, tier: Tier, model: str, how: str) -> None:
        more: dict[str, dict[str, Any]] = {
            "try": {"try_acquire": True},
            "load": {"load_only": True},
        }
        self._guarded(self.world.arrive, tier, model, **more.get(how, {"lane": "train"}))

    @precondition(lambda self: self.world.waiting)
    @rule(who=PICK)
    def give_up(self, who: int) -> None:
        self._guarded(self.world.leave, _nth(list(self.world.waiting), who))

    # -- engines -----------------------------------------------------------------------------

    def _granted(self) -> list[str]:
        world = self.world
        return [n for n in world.running if n not in world.started and not self._seen(n)]

    def _seen(self, name: str) -> bool:
        permit = self.world.core.permits.get(name)
        return permit is None or permit.seen

    @precondition(lambda self: self._granted())
    @rule(who=PICK)
    def start(self, who: int) -> None:
        self._guarded(self.world.start, _nth(self._granted(), who))

    @precondition(lambda self: self.world.started)
    @rule(who=PICK, leaves=st.sampled_from((True, True, False)))
    def finish(self, who: int, leaves: bool) -> None:
        self._guarded(self.world.finish, _nth(list(self.world.started), who), leaves=leaves)

    @precondition(lambda self: self.world.running)
    @rule(who=PICK)
    def hang_up(self, who: int) -> None:
        self._guarded(self.world.leave, _nth(list(self.world.running), who))

    def _loading(self) -> list[Engine]:
        return [engine for engine in self.world.card.engines if not engine.ready]

    @precondition(lambda self: self._loading())
    @rule(which=PICK, steps=st.sampled_from((1, 2, 4, 4)), fails=st.sampled_from((0, 0, 0, 1)))
    def load_on(self, which: int, steps: int, fails: int) -> None:
        engine = _nth(self._loading(), which)
        for _ in range(steps):
            if engine in self._loading():
                self._guarded(self.world.load_on, engine, fails=bool(fails))

    # -- errands -----------------------------------------------------------------------------

    @precondition(lambda self: self.world.errands)
    @rule(which=PICK, ruined=st.sampled_from((False, False, False, True)))
    def run_errand(self, which: int, ruined: bool) -> None:
        self._guarded(self.world.run, _nth(self.world.errands, which), ruined=ruined)

    @precondition(lambda self: self.world.errands)
    @rule()
    def run_all_errands(self) -> None:
        for _ in range(20):
            if self.world.errands:
                self._guarded(self.world.run, self.world.errands[0])

    def _at_work(self) -> list[str]:
        world = self.world
        ready = [key for key in SIZES if world.told[key].state is State.READY]
        return [key for key in ready if key not in world.leaving and world.busy(key)]

    @precondition(lambda self: self._at_work())
    @rule(
        which=PICK,
        wanted=st.sampled_from(("c", "e")),
        tiers=st.tuples(TIER, TIER),
        wait_ms=st.sampled_from((0, 1_000, 3_500)),
    )
    def contend(self, which: int, wanted: str, tiers: tuple[Tier, Tier], wait_ms: int) -> None:
        """A swap is wanted of a model at work, and then somebody comes for that one."""
        key = _nth(self._at_work(), which)
        self._guarded(self.world.arrive, tiers[0], wanted)
        self.run_all_errands()
        self._guarded(self.world.wait, wait_ms)
        self._guarded(self.world.arrive, tiers[1], key)

    # -- time and accidents ------------------------------------------------------------------

    @rule(wait_ms=st.sampled_from((100, 500, 1_000, 3_000, 5_000, 10_000)))
    def wait(self, wait_ms: int) -> None:
        self._guarded(self.world.wait, wait_ms)

    @rule(mib=st.sampled_from((500, 3_000, 10_000)))
    def memory_fades(self, mib: int) -> None:
        self.world.card.fade(mib)

    @rule(
        what=st.sampled_from(("foreign", "crash", "lose", "find", "broker", "unload", "force")),
        which=PICK,
    )
    def accident(self, what: str, which: int) -> None:
        world = self.world
        key = _nth(tuple(SIZES), which)
        ready = world.told[key].state is State.READY and key not in world.leaving
        match what:
            case "foreign":
                self._foreign((0, 500, 2_000, 5_000)[which % 4])
            case "crash" if world.card.engines:
                self._guarded(world.crash, _nth(world.card.engines, which))
            case "lose":
                self._guarded(world.lose, key)
            case "find" if world.lost:
                self._guarded(world.find, _nth(sorted(world.lost), which))
            case "broker":
                world.transcript.event(world.now, "the broker is killed, and comes back")
                world.card.restart_broker(world.now)
                self._guarded(world.check)
            case "unload" | "force" if ready:
                self._guarded(world.unload, key, force=what == "force")
            case _:
                pass

    def _foreign(self, mib: int) -> None:
        """What foreign tenants take of what was promised is nobody's fault here."""
        world = self.world
        world.card.foreign(mib)
        world.card.excess_mib = world.card.overcommitted_mib(world.now)
        world.transcript.event(world.now, f"foreign tenants hold {world.card.foreign_mib}")

    def teardown(self) -> None:
        if hasattr(self, "world") and not self.broken:
            self.world.settle()


def _nth(things: Sequence[_T], pick: int) -> _T:
    return things[pick % len(things)]


TestResidency = ResidencyMachine.TestCase
TestResidency.settings = histories(usual=150, deep=5_000, steps=40)
