"""One engine process as its parent sees it: spawned, gated, watched, stopped.

The exit of the process is the one release of device memory that can be trusted; `over` is set
only then.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import grpc

from chassis import log
from chassis.backoff import RECONNECT
from chassis.channel import open_channel
from chassis.errors import Fault, Reason
from chassis.process import child_env
from cohabit.models.v1 import models_pb2 as pb
from cohabit.models.v1 import models_pb2_grpc as rpc
from hosting.child import Child
from hosting.engine_servicer import permit_event
from hosting.engine_side import FAILED_PREFIX, RENEW_STATUS, RENEWS_LINE, Birth
from hosting.own_address import address_towards, in_target
from hosting.values import AUTO, EngineHome, ModelSpec

_TAIL_LINES = 20
_LINE_BYTES = 64 * 1024
_EVENTS = 1024
_LAST_WORDS_S = 1.0
"""How long a dead engine's standard error is read on; a grandchild may hold it open for ever."""
_EVICTION_S = 2.0
"""How long ended work may take to be over."""


class RenewedError(Exception):
    """The process has ended itself, and wants another in its place."""


def new_name() -> str:
    """What tells an instance from all others."""
    return secrets.token_hex(5)


def instance_id_of(spec: ModelSpec, name: str) -> str:
    """How the instance of that name is known outside."""
    return f"{spec.key}-{name}"


async def host_of(home: EngineHome) -> str:
    """The host engines bind now, as it stands in targets. Raises Fault MODEL_FAILED."""
    if home.host == AUTO:
        return await address_towards(home.scheduler)
    return in_target(home.host)


def _birth_line(
    home: EngineHome, spec: ModelSpec, address: str, instance_id: str, extras: Sequence[str]
) -> bytes:
    """What an engine reads first."""
    born_as = Birth(
        address=address,
        key=spec.key,
        instance_id=instance_id,
        log_level=home.log_level,
        engine=dict(spec.engine),
        extras=extras,
        tls=_paths(home),
        collector=home.collector,
    )
    return json.dumps(asdict(born_as)).encode() + b"\n"


def _paths(home: EngineHome) -> dict[str, str] | None:
    if home.tls is None:
        return None
    return {name: str(path) for name, path in asdict(home.tls).items()}


@dataclass(slots=True)
class EngineHandle:
    """A running engine process. `events` yields what it reports; None marks its end."""

    spec: ModelSpec
    instance_id: str
    address: str
    process: Child
    events: asyncio.Queue[pb.WatchEngineResponse | None]
    birth: bytes
    renews: bool = False
    """It has said that it is about to end itself, and wants another in its place."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    told: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it knows what it is."""
    began: float = field(default_factory=time.monotonic)
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))
    _spoke: bool = False
    _running: set[str] = field(default_factory=set)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    async def spawn(
        cls,
        home: EngineHome,
        spec: ModelSpec,
        port: int | None,
        name: str = "",
        extras: Sequence[str] = (),
        *,
        waits: bool = False,
    ) -> "EngineHandle":
        """Start the process, which has `extras` of its optional memory. It dies with ours, whatever
        ends ours. Raises Fault MODEL_FAILED.

        One that `waits` takes the place of another that is about to end. It imports what it needs
        and is nobody before `begin`; it listens elsewhere, so that it does not hear who meant the
        other.
        """
        name = name or new_name()
        path = f"{home.run_dir}/{home.socket_prefix}{new_name() if waits else name}.sock"
        address = f"{await host_of(home)}:{port}" if port else f"unix:{path}"
        instance_id = instance_id_of(spec, name)
        birth = _birth_line(home, spec, address, instance_id, extras)
        process = await Child.start(
            (sys.executable, "-P", "-m", home.module),
            child_env() | {"GGML_NO_BACKTRACE": "1"},
            None if waits else birth,
            _LINE_BYTES,
        )
        handle = cls(spec, instance_id, address, process, asyncio.Queue(_EVENTS), birth)
        if not waits:
            handle.told.set()
        handle._tasks = [
            asyncio.create_task(handle._relay_stderr()),
            asyncio.create_task(handle._watch()),
            asyncio.create_task(handle._await_exit()),
        ]
        return handle

    def begin(self) -> None:
        """Tell a process that waits what it is."""
        self.process.tell(self.birth)
        self.told.set()

    @property
    def exit_fault(self) -> Fault:
        """Why a process that was not asked to stop has ended."""
        for line in reversed(self.tail):
            if line.startswith(FAILED_PREFIX):
                reason, _, message = line.removeprefix(FAILED_PREFIX).partition(" ")
                return self.failure(reason, message.strip())
        code = self.process.returncode or 0
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return Fault(
            Reason.ENGINE_CRASHED, f"The engine of model '{self.spec.key}' ended by {how}."
        )

    async def report(self, silence_s: float) -> pb.WatchEngineResponse:
        """What the engine tells next. Raises the Fault that says why it tells no more, or
        RenewedError.

        Once it has spoken, `silence_s` without a word means that it is wedged: it is killed, for
        it would not hear a polite word either.
        """
        if not self._spoke:
            event = await self.events.get()
        else:
            event = await self._heard(silence_s)
        if event is None:
            raise RenewedError if self.process.returncode == RENEW_STATUS else self.exit_fault
        self._spoke = True
        return event

    async def _heard(self, silence_s: float) -> pb.WatchEngineResponse | None:
        # In two halves: if we were frozen together with the engine, then on waking the first half
        # is over before its words could be read.
        for _ in range(2):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(silence_s / 2):
                    return await self.events.get()
        self._signal(signal.SIGKILL)
        raise Fault(
            Reason.ENGINE_CRASHED,
            f"The engine of model '{self.spec.key}' said nothing for {silence_s:g} s and was "
            "killed.",
        )

    @staticmethod
    def failure(reason: str, message: str) -> Fault:
        """The fault that an engine reported about its load."""
        known = {r.value for r in Reason}
        return Fault(Reason(reason) if reason in known else Reason.MODEL_FAILED, message)

    async def drain(self, within_s: float, *, force: bool) -> pb.DrainEngineResponse | None:
        """Have it take nothing new until what runs is over; how much runs on after `within_s`, and
        what it has counted.

        With `force` the rest is ended. None: it has not answered, nor is it going to.
        """
        request = pb.DrainEngineRequest(within_ms=round(within_s * 1000), force=force)
        async with open_channel(self.address) as channel:
            stub: rpc.EngineServiceAsyncStub = rpc.EngineServiceStub(channel)
            try:
                return await stub.DrainEngine(request, timeout=within_s + _EVICTION_S)
            except grpc.aio.AioRpcError as error:
                log.get().warning("drain broke", instance=self.instance_id, code=error.code().name)
                return None

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, then SIGKILL after `grace_s`; returns when the process is gone."""
        self._tasks[1].cancel()  # our own watch, for which the engine's drain would wait
        try:
            self._signal(signal.SIGTERM)
            async with asyncio.timeout(grace_s):
                await self.over.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self.over.wait()
        finally:
            if not self.over.is_set():  # cancelled in the middle: leave nothing behind
                self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def _await_exit(self) -> None:
        await self.process.exited.wait()
        relay, watch, _ = self._tasks
        await asyncio.wait([relay], timeout=_LAST_WORDS_S)
        relay.cancel()
        watch.cancel()
        await asyncio.wait([relay, watch])
        self.process.close()
        self._unlink_socket()
        if self.events.full():  # nobody reads; the end must get in all the same
            self.events.get_nowait()
        self.events.put_nowait(None)
        self.over.set()

    def _unlink_socket(self) -> None:
        if self.address.startswith("unix:"):  # a killed engine leaves its socket behind
            Path(self.address.removeprefix("unix:")).unlink(missing_ok=True)

    async def _relay_stderr(self) -> None:
        while True:
            try:
                line = await self.process.stderr.readline()
            except ValueError:  # longer than the limit; what was read is dropped
                continue
            if not line:
                return
            text = line.decode(errors="replace").rstrip("\n")
            if text == RENEWS_LINE:
                self.renews = True
                await self.events.put(pb.WatchEngineResponse())  # so that it is noticed at once
                continue
            self.tail.append(text)
            self._relay(text)

    def _relay(self, line: str) -> None:
        if self.instance_id in line or os.environ.get("COHABIT_LOG") == "console":
            sys.stderr.write(line + "\n")
        else:  # a library's own words, which do not say whose they are
            instance = self.instance_id
            log.get().info("engine said", model=self.spec.key, instance=instance, words=line)

    async def _watch(self) -> None:
        await self.told.wait()  # until then another may answer at its address
        failures = 0
        async with open_channel(self.address) as channel:
            stub: rpc.EngineServiceAsyncStub = rpc.EngineServiceStub(channel)
            while True:
                try:
                    call = stub.WatchEngine(pb.WatchEngineRequest(), wait_for_ready=True)
                    missing = set(self._running)
                    async for event in call:
                        failures = 0
                        await self._pass_on(event, missing)
                except grpc.aio.AioRpcError as error:
                    log.get().debug("engine watch broke", code=error.code().name)
                failures += 1
                await asyncio.sleep(RECONNECT.delay_s(failures))

    async def _pass_on(self, event: pb.WatchEngineResponse, missing: set[str]) -> None:
        """Queue an event. A new stream names what runs, then says its usage: work that was known
        before and is `missing` by then has ended while nobody listened."""
        if event.HasField("permit"):
            permit_id = event.permit.permit_id
            missing.discard(permit_id)
            started = event.permit.phase == pb.PermitChange.PHASE_STARTED
            (self._running.add if started else self._running.discard)(permit_id)
        if event.HasField("usage"):
            for permit_id in missing:
                self._running.discard(permit_id)
                await self.events.put(permit_event(permit_id, started=False))
            missing.clear()
        await self.events.put(event)
