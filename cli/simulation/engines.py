"""A simulated model: its instances, what they hold of the card, and what runs on them.

It tells `say` of each change and `world` of what ended; it decides nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from cli.simulation.card import Card
from cli.simulation.clock import Clock
from cli.simulation.record import Load, Phase, Record
from cli.simulation.setup import Profile
from services.broker.core import LeaseKind
from services.scheduler.core.values import InstanceFacts, ModelFacts, StartUnload, State

_STEPS = 4
"""Memory materialises in so many parts, each reported."""


@dataclass(slots=True, eq=False)
class Instance:
    """One engine process that is not there."""

    name: str
    lease_id: str
    began_ms: int
    state: State = State.LOADING
    steps: int = 0
    held_mib: int = 0


@dataclass(slots=True, eq=False)
class Listener:
    """Whom a model tells what happens to it."""

    changed: Callable[[ModelFacts], None]
    load_ended: Callable[[str], None]
    unload_ended: Callable[[str], None]
    cut_off: Callable[[str], None]
    """Ends the request of this permit, which still ran."""


@dataclass(slots=True, eq=False)
class SimulatedModel:
    """All instances of one model."""

    profile: Profile
    clock: Clock
    card: Card
    record: Record
    listener: Listener
    instances: list[Instance] = field(default_factory=list)
    running: dict[str, str] = field(default_factory=dict)
    """Permits that were granted on it, with their instance."""
    _unload: StartUnload | None = None
    _born: int = 0

    # -- loading -----------------------------------------------------------------------------

    def load(self, lease_id: str) -> None:
        """Begin one more instance in leased memory; not while the model is leaving."""
        if self._unload is not None:
            self.card.release(self.clock.now_ms, lease_id)
            self.listener.load_ended(self.profile.key)
            return
        self._born += 1
        instance = Instance(f"{self.profile.key}#{self._born}", lease_id, self.clock.now_ms)
        self.instances.append(instance)
        self._say()
        self._next_step(instance)

    def _next_step(self, instance: Instance) -> None:
        part_ms = self.profile.load_ms * (instance.steps + 1) // _STEPS
        self.clock.at(instance.began_ms + part_ms, self._step, instance)

    def _step(self, instance: Instance) -> None:
        if instance.state is not State.LOADING:
            return
        instance.steps += 1
        self._hold(instance, self.profile.resident_mib * instance.steps // _STEPS)
        if instance.steps < _STEPS:
            self._say()
            self._next_step(instance)
            return
        instance.state = State.READY
        loaded = Load(self.profile.key, instance.began_ms, self.clock.now_ms)
        self.record.loads.append(loaded)
        self._say()
        self.listener.load_ended(self.profile.key)

    def _hold(self, instance: Instance, mib: int) -> None:
        self.card.take(LeaseKind.RESIDENT, mib - instance.held_mib)
        instance.held_mib = mib
        self.card.report(self.clock.now_ms, instance.lease_id, mib)
        self.record.used(self.clock.now_ms, self.card.use)

    # -- unloading ---------------------------------------------------------------------------

    def unload(self, order: StartUnload) -> None:
        """Drain, then leave; what still runs when the time is over is cut off, or it stays.

        A load that is under way is given up.
        """
        if self._unload is not None:
            return
        self._unload = order
        for instance in self.instances:
            if instance.state is State.LOADING:
                self.clock.after(self.profile.unload_ms, self._gone, instance)
            instance.state = State.DRAINING
        self.clock.after(order.drain_ms, self._drained_long_enough, order)
        self._say()
        self._leave_if_idle()

    def began(self, permit_id: str, instance_id: str) -> None:
        """A request was granted here."""
        self.running[permit_id] = instance_id
        if len(self.running) == 1:
            self._show()

    def ended(self, permit_id: str) -> None:
        """It is over."""
        self.running.pop(permit_id, None)
        if not self.running:
            self._show()
            self._leave_if_idle()

    def _drained_long_enough(self, order: StartUnload) -> None:
        if self._unload is not order or not self.running:
            return
        if order.force:
            for permit_id in list(self.running):
                self.listener.cut_off(permit_id)
            return
        self._unload = None
        for instance in self.instances:
            if instance.steps == _STEPS:
                instance.state = State.READY
        self._say()
        self.listener.unload_ended(self.profile.key)

    def _leave_if_idle(self) -> None:
        if self._unload is None or self.running:
            return
        for instance in self.instances:
            self.clock.after(self.profile.unload_ms, self._gone, instance)
        if not self.instances:
            self._unload_is_over()

    def _gone(self, instance: Instance) -> None:
        if instance not in self.instances:
            return
        self.instances.remove(instance)
        self.card.give(LeaseKind.RESIDENT, instance.held_mib)
        self.card.release(self.clock.now_ms, instance.lease_id)
        self.record.used(self.clock.now_ms, self.card.use)
        self._say()
        if instance.steps < _STEPS:
            self.record.given_up.append(self.profile.key)
            self.listener.load_ended(self.profile.key)
        else:
            self.record.evictions.append((self.clock.now_ms, self.profile.key))
        if self._unload is not None and not self.instances:
            self._unload_is_over()

    def _unload_is_over(self) -> None:
        self._unload = None
        self.listener.unload_ended(self.profile.key)

    # -- words -------------------------------------------------------------------------------

    def facts(self) -> ModelFacts:
        """The model as a model service would report it."""
        profile = self.profile
        return ModelFacts(
            key=profile.key,
            lane=profile.lane,
            state=self._state(),
            resident_mib=profile.resident_mib,
            peak_mib=profile.peak_mib,
            family=profile.family,
            context_tokens=profile.context_tokens,
            max_instances=profile.max_instances,
            instances=tuple(self._instance(each) for each in self.instances),
        )

    def _instance(self, instance: Instance) -> InstanceFacts:
        return InstanceFacts(
            instance_id=instance.name,
            state=instance.state,
            address=f"simulated:{instance.name}",
            places=self.profile.places,
            progress=instance.steps / _STEPS,
            load_ms=self.profile.load_ms,
        )

    def _state(self) -> State:
        states = {each.state for each in self.instances}
        for state in (State.READY, State.LOADING, State.DRAINING):
            if state in states:
                return state
        return State.COLD

    def _say(self) -> None:
        self._show()
        self.listener.changed(self.facts())

    def _show(self) -> None:
        match self._state():
            case State.READY:
                phase = Phase.BUSY if self.running else Phase.IDLE
            case State.LOADING:
                phase = Phase.LOADING
            case State.DRAINING:
                phase = Phase.DRAINING
            case _:
                phase = Phase.AWAY
        self.record.phase(self.clock.now_ms, self.profile.key, phase)
