"""One model of a service and all that is known about it. Values only: `tenancy` gives them life."""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field

from chassis.errors import Fault
from cohabit.broker.v1 import broker_pb2
from cohabit.models.v1 import models_pb2 as pb
from hosting.core import Life, State
from hosting.instance import EngineHandle
from hosting.values import ModelSpec, Source


@dataclass(slots=True)
class Hosted:
    """One model and, while it is loaded, its engine."""

    source: Source
    stamp: Hashable
    """Of what `spec` was made from."""
    spec: ModelSpec
    life: Life = field(default_factory=Life)
    engine: EngineHandle | None = None
    lease: broker_pb2.Lease | None = None
    facts: pb.EngineReady | None = None
    permits: set[str] = field(default_factory=set)
    progress: float = 0.0
    materialised_mib: int = 0
    load_ms: int = 0
    tenancy: "Tenancy | None" = None
    """From the adoption of a lease until it is released and the process gone."""
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One load begins at a time."""
    describing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Its files are looked at by one at a time."""
    loaders: int = 0
    """Callers that still want the load in progress."""
    drainers: int = 0
    """Callers that wait for it to drain."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the next change, which puts a fresh one in its place."""

    @classmethod
    def of(cls, source: Source) -> "Hosted":
        """The model that `source` describes; blocks."""
        stamp = source.stamp()  # first: a change in between is seen the next time
        return cls(source, stamp, source.describe())

    @property
    def loading(self) -> bool:
        """Whether a load is in progress."""
        return self.life.state is State.LOADING

    def wake(self) -> None:
        """Wake everybody who waits for a change."""
        self.changed.set()
        self.changed = asyncio.Event()

    def dismiss(self) -> None:
        """Have the engine stopped and the lease released; may be said more than once."""
        if self.tenancy is not None and self.tenancy.living is not None:
            self.tenancy.dismissed = True
            self.tenancy.living.cancel()

    async def vacant(self) -> None:
        """Wait until no process and no lease is left of the present tenancy."""
        tenancy = self.tenancy
        if tenancy is not None:
            await tenancy.over.wait()


@dataclass(slots=True)
class Tenancy:
    """The tasks behind one loaded model; `living` alone is ever cancelled from outside."""

    port: int | None
    living: asyncio.Task[None] | None = None
    ending: asyncio.Task[None] | None = None
    spawning: asyncio.Task[EngineHandle] | None = None
    keeper: asyncio.Task[None] | None = None
    renew: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the broker should hear at once what is in use."""
    dismissed: bool = False
    lost: Fault | None = None
    """Why it must end although its engine is well."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ending_soon(self) -> bool:
        """Nothing can be joined here any more; `over` comes within seconds."""
        return self.dismissed or self.living is None or self.living.done()
