"""The page of `cohabit models` on a terminal: redrawn as things change, whoever is restarted."""

import asyncio
import signal
import time
from contextlib import aclosing

from rich.console import Console
from rich.live import Live

from cli.dial import Dialled
from cli.leases import Ledger
from cli.model_page import fitted
from cli.sight import Sight, ledgers, statuses
from cohabit.scheduler.v1 import scheduler_pb2 as pb

_APART_S = 0.25
"""Between two drawings, at least."""
_AGEING_S = 1.0
"""Between two drawings, at most: what is shown grows old."""


class Screen:
    """What is on the terminal: the latest sight, drawn a few times a second at most."""

    def __init__(self, house: Dialled, sight: Sight) -> None:
        self._house = house
        self._sight = sight
        self._changed = asyncio.Event()

    async def show(self) -> None:
        """Draw until cancelled."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, self._changed.set)
        with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_scheduler())
                group.create_task(self._follow_broker())
                await self._draw(live)

    async def _draw(self, live: Live) -> None:
        while True:
            self._changed.clear()
            live.update(fitted(live.console, self._sight, time.time() * 1000), refresh=True)
            await asyncio.sleep(_APART_S)
            try:
                async with asyncio.timeout(_AGEING_S - _APART_S):
                    await self._changed.wait()
            except TimeoutError:  # nothing new, but older
                continue

    async def _follow_scheduler(self) -> None:
        async with aclosing(statuses(self._house)) as seen:
            async for said in seen:
                if isinstance(said, str):
                    self._see("scheduler", said)
                else:
                    self._see("scheduler", status=said)

    async def _follow_broker(self) -> None:
        async with aclosing(ledgers(self._house)) as seen:
            async for said in seen:
                if isinstance(said, str):
                    self._see("broker", said)
                else:
                    self._see("broker", ledger=said)

    def _see(
        self,
        peer: str,
        trouble: str = "",
        *,
        status: pb.Status | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """Take in what `peer` said; what it said before stays in sight while it is silent."""
        old = self._sight
        troubles = {name: said for name, said in old.troubles.items() if name != peer}
        if trouble:
            troubles[peer] = trouble
        self._sight = Sight(status or old.status, ledger or old.ledger, troubles)
        self._changed.set()
