"""The scheduler without its wire: core and shell of services.scheduler on this process's loop.

What stands in: a model service that reports three models as READY, and what starts and ends there.
Nobody is asked for memory, as the models are resident; nothing runs, so no engine is asked either.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from bench.scheduler.loads import settings
from bench.scheduler.script import MODELS
from chassis.clock import steady_ms
from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2
from services.scheduler.clients import Broker, Everything, PermitMoved, Report, Worker
from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.values import Grant, Refuse, Request, Tier
from services.scheduler.shell import SchedulerShell

INSTANCE = "engine-1"
_SOCKET = "unix:/nonexistent/cohabit-bench.sock"


def resident(address: str, places: int) -> list[models_pb2.Model]:
    """The models of the script, READY, as a model service reports them."""
    instance = models_pb2.Instance(
        instance_id=INSTANCE,
        state=models_pb2.MODEL_STATE_READY,
        address=address,
        places=places,
    )
    return [
        models_pb2.Model(
            key=key,
            lane=key,
            state=models_pb2.MODEL_STATE_READY,
            footprint=common_pb2.Footprint(resident_mib=100),
            instances=[instance],
        )
        for key in MODELS
    ]


class _ReadyWorker(Worker):
    """A model service that says what it is told."""

    def __init__(self, places: int) -> None:
        super().__init__("llm", _SOCKET)
        self._places = places
        self._moves: deque[tuple[PermitMoved, asyncio.Future[None]]] = deque()
        self._more = asyncio.Event()

    async def watch(self) -> AsyncIterator[Report]:
        """Everything, then what moved."""
        yield Everything(tuple(resident(_SOCKET, self._places)), {})
        while True:
            await self._more.wait()
            self._more.clear()
            while self._moves:
                move, taken = self._moves.popleft()
                yield move
                if not taken.done():
                    taken.set_result(None)

    def moved(self, permit_id: str, model: str, *, started: bool) -> asyncio.Future[None]:
        """Report a start or an end; done when the scheduler has heard of it."""
        taken = asyncio.get_running_loop().create_future()
        self._moves.append((PermitMoved(permit_id, model, INSTANCE, started), taken))
        self._more.set()
        return taken


class ShellDoor:
    """See `Door`."""

    def __init__(self, shell: SchedulerShell, worker: _ReadyWorker) -> None:
        self._shell = shell
        self._worker = worker
        self._numbers = count()

    @asynccontextmanager
    async def admitted(self, tier: Tier, model: str, key: str) -> AsyncIterator[None]:
        """See `Door`."""
        name = f"permit-{next(self._numbers)}"
        with self._shell.admit(Request(name, model, tier, steady_ms(), key=key)) as mailbox:
            notice = await mailbox.get()
            while not isinstance(notice, Grant):
                if isinstance(notice, Refuse):
                    raise RuntimeError(f"refused: {notice.cause.value} {notice.detail}")
                notice = await mailbox.get()
            self._worker.moved(name, model, started=True)
            try:
                yield
            finally:
                await self._worker.moved(name, model, started=False)


@asynccontextmanager
async def through_shell(slots: int) -> AsyncIterator[ShellDoor]:
    """A shell that has heard of its models, until the end of the block."""
    worker = _ReadyWorker(places=slots)
    shell = SchedulerShell(SchedulerCore(settings(slots)), Broker(_SOCKET), [worker])
    shell.start(reconcile_s=10.0)
    try:
        async with asyncio.timeout(10.0):
            await shell.ready.wait()
        yield ShellDoor(shell, worker)
        if shell.core.permits or len(shell.core.room):
            raise RuntimeError(f"{len(shell.core.permits)} permits are left behind")
    finally:
        await shell.close()
