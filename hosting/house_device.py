"""The device of the house, as the broker tells it: asked until it answers, and remembered.

Which device that is never changes while the house runs, but a model service may be up before the
broker is: until then models are described for the host's memory, and described anew afterwards.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import grpc

from chassis import log
from chassis.backoff import RECONNECT
from chassis.channel import open_channel
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc

_ASK_S = 2.0


@dataclass(frozen=True, slots=True)
class Device:
    """What a house lends memory of."""

    name: str = "cpu"
    """As BrokerService names it."""
    lendable_mib: int = 0
    """What a lease could be granted on the empty device; 0: not known."""
    card: str = ""
    """As its driver calls it; empty: the memory is the host's, and nothing can be put on a card."""


HOST = Device()


class HouseDevice:
    """What is known of the device; `present` is read from threads, too."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._known = asyncio.Event()
        self.present: Device = HOST

    async def follow(self) -> None:
        """Ask until the broker has told of its first device, which is the one that is lent."""
        failures = 0
        async with open_channel(self._broker) as channel:
            stub: broker_pb2_grpc.BrokerServiceAsyncStub = broker_pb2_grpc.BrokerServiceStub(
                channel
            )
            while not self._known.is_set():
                try:
                    request = broker_pb2.GetDeviceMemoryRequest()
                    answer = await stub.GetDeviceMemory(request, timeout=_ASK_S)
                except grpc.aio.AioRpcError as error:
                    failures += 1
                    log.get().debug("device not known yet", code=error.code().name)
                    await asyncio.sleep(RECONNECT.delay_s(failures))
                else:
                    self.present = device_of(answer)
                    self._known.set()

    async def known(self, within_s: float) -> None:
        """Return when the broker has told, or after `within_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._known.wait()


def device_of(answer: broker_pb2.GetDeviceMemoryResponse) -> Device:
    """The device that models are placed on. A simulated card takes nothing real."""
    for memory in answer.devices[:1]:
        reserved_mib = sum(reserve.reserved_mib for reserve in memory.reserves)
        lendable_mib = max(0, memory.total_mib - memory.floor_mib - reserved_mib)
        is_card = memory.kind == broker_pb2.DEVICE_KIND_NVML
        card = memory.description or "a card" if is_card else ""
        return Device(memory.device, lendable_mib, card)
    return HOST
