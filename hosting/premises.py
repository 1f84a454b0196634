"""What every model service stands on, so that its `__main__` wires nothing but its own.

A place for its engines, a book of its leases, the device of the house, and a server that closes all
of it in the right order.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from chassis import tls_config, tracing
from chassis.following import Following
from chassis.main import Context
from chassis.server import Server
from hosting import metrics
from hosting.config import HostingSection
from hosting.host import ModelHost
from hosting.house_device import Device, HouseDevice
from hosting.leases import LeaseBook
from hosting.listing import Listing
from hosting.values import EngineHome

_DEVICE_S = 2.0
"""How long the first descriptions wait for the broker to say what there is to place models on."""
_DRAIN_S = 2.0

S = TypeVar("S", bound=HostingSection)
Close = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Premises:
    """Of one model service."""

    home: EngineHome
    leases: LeaseBook
    device: HouseDevice
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    """What goes on beside calls."""

    @classmethod
    def of(cls, service: str, context: Context[S]) -> "Premises":
        """Those of `service`, whose engines run `services.<service>.engine_main`."""
        house, own = context.house, context.own
        home = EngineHome(
            service=service,
            module=f"services.{service}.engine_main",
            run_dir=house.run_dir,
            log_level=house.log_level,
            ports=own.engine_ports,
            host=own.engine_host,
            scheduler=house.address_of("scheduler"),
            tls=tls_config.files_of(context.document),
            collector=tracing.endpoint_of(house.traces.endpoint) if tracing.is_on() else "",
            load_timeout_s=own.load_timeout_s,
            removal_drain_s=own.removal_drain_s,
        )
        home.sweep()
        broker = house.address_of("broker")
        return cls(home, LeaseBook(broker, service), HouseDevice(broker))

    def present(self) -> Device:
        """What there is to place models on, as far as is known; any thread may ask."""
        return self.device.present

    async def host(self, listing: Listing[S], following: Following[S]) -> ModelHost:
        """The models, described for the device of the house, if the broker has told it by then;
        from then on as the configuration lists them.
        """
        self._begin(self.device.follow())
        await self.device.known(_DEVICE_S)
        host = ModelHost(self.home, listing.sources().values(), self.leases)
        following.use(partial(listing.take, host))
        following.told.append(
            lambda: host.note_configuration(following.problem, following.restart_keys)
        )
        return host

    def server(self, names: tuple[str, ...], host: ModelHost, closings: Iterable[Close]) -> Server:
        """A server of `names` under which all that goes on beside calls goes on.

        When it closes, the models go first, then what `closings` are of, the last one first.
        """
        server = Server(names, drain_s=_DRAIN_S)
        server.leaving.append(host.events.close)
        for closing in (self.leases.close, *closings, host.close):
            server.closing.push_async_callback(closing)
        self._begin(self.leases.release_leftovers(host.lease_ids))
        self._begin(host.follow())
        server.closing.callback(metrics.follow(host))
        for task in self._tasks:
            server.closing.callback(task.cancel)
        return server

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))
