"""Connections to engines, which come and go: kept by address, the idle ones bounded.

A channel in use is never closed: that would end its calls.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc

from chassis.channel import open_channel

S = TypeVar("S")


@dataclass(slots=True)
class _Held(Generic[S]):
    channel: grpc.aio.Channel
    stub: S
    users: int = 0


class Channels(Generic[S]):
    """Stubs by address; of those not in use, the `max_idle` used last stay connected."""

    def __init__(self, max_idle: int, make_stub: Callable[[grpc.aio.Channel], S]) -> None:
        self._max_idle = max_idle
        self._make_stub = make_stub
        self._busy: dict[str, _Held[S]] = {}
        self._idle: OrderedDict[str, _Held[S]] = OrderedDict()

    @asynccontextmanager
    async def to(self, address: str) -> AsyncIterator[S]:
        """A stub that talks to `address`, connected at least until the block ends."""
        held = self._busy.get(address) or self._idle.pop(address, None) or self._open(address)
        self._busy[address] = held
        held.users += 1
        try:
            yield held.stub
        finally:
            held.users -= 1
            if held.users == 0 and self._busy.pop(address, None) is not None:
                self._idle[address] = held
                await self._shrink()

    def addresses(self) -> tuple[str, ...]:
        """What it is connected to: in use first, then idle from the longest to the last used."""
        return (*self._busy, *self._idle)

    async def close(self) -> None:
        """Close every channel, and with it the calls that still run."""
        for held in (*self._busy.values(), *self._idle.values()):
            await held.channel.close()
        self._busy.clear()
        self._idle.clear()

    def _open(self, address: str) -> _Held[S]:
        channel = open_channel(address)
        return _Held(channel, self._make_stub(channel))

    async def _shrink(self) -> None:
        while len(self._idle) > self._max_idle:
            _, oldest = self._idle.popitem(last=False)
            await oldest.channel.close()
