"""One instance of a model: an engine under a lease. Values only: `landlord` gives them life."""

import asyncio
from dataclasses import dataclass, field

from chassis.errors import Fault
from cohabit.broker.v1 import broker_pb2
from cohabit.models.v1 import models_pb2 as pb
from hosting.core import Life, State
from hosting.extras import Extras
from hosting.instance import EngineHandle, instance_id_of, new_name
from hosting.leases import LeaseBook
from hosting.transients import Transients
from hosting.trial import Trial
from hosting.usage import Usage
from hosting.values import ModelSpec


@dataclass(slots=True)
class Tenancy:
    """From the adoption of a lease until the process is gone and the lease released.

    Of the tasks, `living` alone is ever cancelled from outside.
    """

    spec: ModelSpec
    """As it was when the load began."""
    lease: broker_pb2.Lease
    book: LeaseBook
    ports: list[int] = field(default_factory=list)
    """Over TCP: those of its engines, the last one that of the last."""
    trial: Trial | None = None
    """The one that its load is part of."""
    name: str = field(default_factory=new_name)
    life: Life = field(default_factory=Life)
    engine: EngineHandle | None = None
    facts: pb.EngineReady | None = None
    permits: set[str] = field(default_factory=set)
    """Those whose work runs here."""
    transients: Transients = field(init=False)
    extras: Extras = field(init=False)
    usage: Usage = field(default_factory=Usage)
    """As last reported."""
    renewed: Usage = field(default_factory=Usage)
    """As the leases were last renewed with."""
    speculation: pb.Speculation | None = None
    """As last reported; None: it does not guess."""
    figures: pb.EngineFigures = field(default_factory=pb.EngineFigures)
    """As last reported."""
    progress: float = 0.0
    load_ms: int = 0
    loaders: int = 0
    """Callers that still want the load in progress."""
    drainers: int = 0
    """Callers that wait for it to drain."""
    living: asyncio.Task[None] | None = None
    ending: asyncio.Task[None] | None = None
    spawning: asyncio.Task[EngineHandle] | None = None
    keeper: asyncio.Task[None] | None = None
    renew: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the broker should hear at once what is in use."""
    renewing: bool = False
    """Its engine has ended itself, or is about to, and another loads in its place."""
    dismissed: bool = False
    lost: Fault | None = None
    """Why it must end although its engine is well."""
    fault: Fault | None = None
    """Why it has FAILED."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nothing is left of it."""

    def __post_init__(self) -> None:
        self.transients = Transients(self.book, self.spec.key, lambda: self.usage.transient_mib)
        self.extras = Extras(self.book, self.spec.key, self.spec.extras, self._share_mib)

    @property
    def instance_id(self) -> str:
        """As it is known outside."""
        return instance_id_of(self.spec, self.name)

    @property
    def state(self) -> State:
        """Where it is in its life."""
        return self.life.state

    @property
    def loading(self) -> bool:
        """Whether its load is in progress."""
        return self.life.state is State.LOADING

    @property
    def leaving(self) -> bool:
        """Nothing can be joined here any more; `over` comes within seconds."""
        return self.dismissed or self.living is None or self.living.done()

    @property
    def on_card(self) -> bool:
        """Its memory is not the host's, and is no pretence."""
        return self.lease.device.startswith("gpu")

    @property
    def resident_in_use_mib(self) -> int:
        """Memory it holds beside its extras and that of running requests.

        On a card the model's footprint stands for it: processes in containers cannot be told
        apart by the driver, and host memory says nothing about the card.
        """
        if self.on_card:
            return self.spec.resident_mib if self.facts is not None else 0
        return self.usage.resident_mib - self.extras.in_use_mib

    def _share_mib(self, granted_mib: int) -> int:
        """What of an extra's lease is in use: by its size, as the engine tells one figure."""
        if self.on_card:
            return granted_mib if self.facts is not None else 0
        whole_mib = self.lease.granted_mib + self.extras.granted_mib
        share_mib = self.usage.resident_mib * granted_mib // max(1, whole_mib)
        return min(granted_mib, share_mib)

    @property
    def lease_ids(self) -> set[str]:
        """Every lease it lives on."""
        return {self.lease.lease_id} | self.transients.lease_ids | self.extras.lease_ids

    def renew_leases(self) -> None:
        """Have the broker told at once what is in use."""
        self.renewed = self.usage
        self.renew.set()
        self.transients.renew()
        self.extras.renew()

    def dismiss(self) -> None:
        """Have the engine stopped and the lease released; may be said more than once."""
        if self.living is not None:
            self.dismissed = True
            self.living.cancel()
