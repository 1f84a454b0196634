"""The frame of an engine process: what it is told at birth, and what it tells its parent.

The parent starts `python -P -m <module>` and writes one JSON object (`Birth`) to its standard
input. The engine binds its address at once, reports the load, and serves until SIGTERM. One that
has work which cannot be cancelled may end by itself, and be renewed.
"""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import grpc
import structlog

from chassis import log, tls, tracing
from chassis.channel import PERMIT_ID
from chassis.errors import Fault, Reason
from chassis.loop import run
from chassis.process import die_with_parent
from chassis.server import CannotListen, Server, service_name, until_signal
from chassis.tls_check import UnusableError
from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2 as pb
from cohabit.models.v1 import models_pb2_grpc as rpc
from hosting.broadcast import Broadcast
from hosting.engine_servicer import EngineServicer, permit_event
from hosting.permits import PermitLedger
from hosting.usage import ReadUsage, Usage, process_usage

ENGINE_SERVICE = service_name(pb, "EngineService")
_LOOK_EVERY_S = 0.1
_LAST_FAULTS_S = 1.0
"""How long requests have to end when the process must."""


@dataclass(frozen=True, slots=True)
class Birth:
    """What the parent tells a new engine process."""

    address: str
    key: str
    instance_id: str
    log_level: str
    engine: Mapping[str, Any]
    """The service's own: file, context, threads, …"""
    extras: Sequence[str] = ()
    """The names of the optional memory that is there."""
    tls: Mapping[str, str] | None = None
    """The paths of its certificates, never what stands in them; None: its TCP is plain."""
    collector: str = ""
    """Where it tells its traces; empty: nowhere."""


@dataclass(slots=True)
class EngineProcess:
    """This process, as its service sees it."""

    birth: Birth
    server: Server
    events: Broadcast[pb.WatchEngineResponse] = field(default_factory=Broadcast)
    ready: pb.EngineReady | None = None
    progress: float = 0.0
    usage: ReadUsage = process_usage
    """Says what memory is held; an engine whose memory is not the host's sets its own."""
    speculation: Callable[[], pb.Speculation] | None = None
    """Says what guessing ahead has come to; set by engines that guess. Cheap, as `usage`."""
    held: Callable[[], Mapping[str, int]] | None = None
    """Says how much there is of what its service shows; cheap, as `usage`."""
    permits: PermitLedger = field(init=False)
    _counted: Counter[str] = field(default_factory=Counter)
    _figures: pb.EngineFigures = field(default_factory=pb.EngineFigures)
    """As last told."""
    _told: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        self.permits = PermitLedger(self._permit_changed, is_open=False)

    def report_progress(self, share: float) -> None:
        """Tell the parent how much of the weights is read (0 to 1). Event loop only."""
        self.progress = share
        self.events.publish(pb.WatchEngineResponse(load_progress=share))

    @property
    def used(self) -> Usage:
        """What memory is held now."""
        return Usage(*self.usage())

    def usage_event(self) -> pb.WatchEngineResponse:
        """What is told every few seconds."""
        used = self.used
        told = self.speculation() if self.speculation is not None else None
        usage = pb.EngineUsage(
            materialised_mib=used.materialised_mib,
            transient_mib=used.transient_mib,
            speculation=told,
        )
        return pb.WatchEngineResponse(usage=usage)

    def report_usage(self) -> None:
        """Tell the parent what memory is held, if that has moved by much. Event loop only.

        It is looked at ten times a second anyway; call this where that is too late.
        """
        used = self.used
        if used.is_far_from(self._told):
            self._told = used
            self.events.publish(self.usage_event())

    def count(self, **more: int) -> None:
        """Add to what is counted, by the names of `hosting.figures`. Event loop only."""
        self._counted.update(more)

    def figures_event(self) -> pb.WatchEngineResponse:
        """What is counted and held."""
        held = self.held() if self.held is not None else {}
        figures = pb.EngineFigures(counted=self._counted, held=held)
        return pb.WatchEngineResponse(figures=figures)

    def report_figures(self) -> None:
        """Tell the parent what is counted and held, if it has changed. Event loop only."""
        event = self.figures_event()
        if event.figures != self._figures:
            self._figures = event.figures
            self.events.publish(event)

    def renew(self) -> NoReturn:
        """End this process at once, whatever runs in it, and have the parent load anew.

        For work that cannot be cancelled and would outlast that. Nothing is cleared away: the
        exit of the process is what frees the device. Callers find the engine gone.
        """
        # The pipe takes it at once, so that the parent prepares the next process meanwhile.
        sys.stderr.write(f"{RENEWS_LINE}\n")
        sys.stderr.flush()
        os._exit(RENEW_STATUS)

    def _permit_changed(self, permit_id: str, started: bool, transient_lease_id: str) -> None:
        change = permit_event(permit_id, started=started, transient_lease_id=transient_lease_id)
        self.events.publish(change)


def permit_of(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """The permit a call carries; empty if none."""
    for key, value in context.invocation_metadata() or ():
        if key == PERMIT_ID:
            return str(value)
    return ""


Loader = Callable[[EngineProcess], Awaitable[pb.EngineReady]]
"""Registers servicers on `process.server`, loads the model, answers what it can do."""


def run_engine(names: tuple[str, ...], load: Loader, warm: Sequence[str] = ()) -> None:
    """The whole life of an engine process that serves `names` beside EngineService.

    `warm` are modules that `load` will import. They are imported while the process may still wait
    to be told what it is: none of them may touch the device.
    """
    die_with_parent()
    for module in warm:
        with suppress(ImportError):  # the load runs into it again, and says so
            import_module(module)
    birth = Birth(**json.loads(sys.stdin.readline()))
    log.configure(f"engine {birth.key}", birth.log_level)
    _sign_lines(birth)
    try:
        tls.adopt(_files_of(birth))
    except UnusableError as error:
        _say_failed(Fault(Reason.MODEL_FAILED, f"tls.{error.key}: {error}."))
        raise SystemExit(1) from None
    tracing.configure("engine", birth.collector, said={"cohabit.model": birth.key})
    run(_live(birth, names, load))


def _files_of(birth: Birth) -> tls.TlsFiles | None:
    if birth.tls is None:
        return None
    return tls.TlsFiles(**{name: Path(path) for name, path in birth.tls.items()})


def _sign_lines(birth: Birth) -> None:
    """Have every line of the log say whose it is: the parent relays those of all its engines."""

    def sign(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        return {"model": birth.key, "instance": birth.instance_id, **event}

    structlog.configure(processors=[sign, *structlog.get_config()["processors"]])


async def _live(birth: Birth, names: tuple[str, ...], load: Loader) -> None:
    process = EngineProcess(birth, Server((*names, ENGINE_SERVICE), drain_s=0.5))
    rpc.add_EngineServiceServicer_to_server(EngineServicer(process), process.server.grpc)
    loading = asyncio.create_task(_load(process, load))
    metering = asyncio.create_task(_meter(process))
    try:
        await until_signal()
    finally:
        loading.cancel()
        metering.cancel()
        await process.permits.close(_LAST_FAULTS_S)
        await process.server.stop()
        tracing.close()
        # A load in progress sits on a thread that cannot be stopped; exiting frees everything.
        os._exit(0)


async def _meter(process: EngineProcess) -> None:
    while True:
        process.report_usage()
        process.report_figures()
        await asyncio.sleep(_LOOK_EVERY_S)


async def _load(process: EngineProcess, load: Loader) -> None:
    try:
        ready = await load(process)
    except Fault as fault:
        await _fail(process, fault)
    except CannotListen as error:
        await _fail(process, Fault(Reason.MODEL_FAILED, f"The engine's address {error}."))
    except Exception:
        log.get().exception("load failed")
        await _fail(process, Fault(Reason.MODEL_FAILED, "The engine failed; its log says how."))
    else:
        await process.server.set_serving(True)
        process.ready = ready
        process.permits.open()
        process.events.publish(process.usage_event())
        process.events.publish(pb.WatchEngineResponse(ready=ready))


async def _fail(process: EngineProcess, fault: Fault) -> None:
    failure = common_pb2.Failure(reason=fault.reason.value, message=fault.message)
    _say_failed(fault)  # which the parent reads even when its stream comes too late
    process.events.publish(pb.WatchEngineResponse(failed=failure))
    try:
        await process.server.stop()
    finally:
        os._exit(1)


def _say_failed(fault: Fault) -> None:
    sys.stderr.write(f"{FAILED_PREFIX}{fault.reason.value} {' '.join(fault.message.split())}\n")


FAILED_PREFIX = "engine-failed "
RENEWS_LINE = "engine-renews"
RENEW_STATUS = 75
"""EX_TEMPFAIL of sysexits.h: it is to be tried again."""
