"""Supervises the services of one host: starts them, restarts what crashes, stops all in order.

It knows programs and exit codes, nothing of gRPC, configuration or models: what to start is given
to it. Everything is spawned from the main thread, because a child's wish to die with its parent is
bound to the thread that started it. Each child leads a session of its own, so that Ctrl-C in the
terminal reaches the launcher alone.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from chassis import restarts
from chassis.backoff import Backoff
from cli.lines import Screen, pump

OWN = "cohabit"
"""The prefix of the launcher's own lines."""
STOP_S = 9.0
"""All services are gone this long after the first Ctrl-C."""
_DRAIN_PIPE_S = 0.3
_LEAST_STOP_S = 0.5
_REAP_S = 0.5
"""A killed process is gone by then unless the kernel holds it."""
_TAIL_LINES = 4


@dataclass(frozen=True, slots=True)
class Spec:
    """One service: its prefix and the program that runs it."""

    name: str
    argv: Sequence[str]
    stop_s: float = 0.0
    """The most time it gets to stop; 0: whatever is left."""


@dataclass(slots=True)
class _Child:
    """A service under supervision, over all its restarts."""

    spec: Spec
    process: asyncio.subprocess.Process | None = None
    failures: int = 0
    ran_before: bool = False
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))

    @property
    def running(self) -> asyncio.subprocess.Process | None:
        """The process, if there is one that has not been reaped."""
        process = self.process
        return process if process is not None and process.returncode is None else None


def deadlines(wishes: Sequence[float], all_s: float) -> list[float]:
    """Seconds from the beginning by which each must be gone, in the order of stopping.

    Each may take what is left, but for a little for each one after it, and no more than its wish
    (0: none) beyond its predecessor's deadline.
    """
    least_s = min(_LEAST_STOP_S, all_s / max(1, len(wishes)))
    ends: list[float] = []
    for place, wish in enumerate(wishes, start=1):
        latest = all_s - least_s * (len(wishes) - place)
        before = ends[-1] if ends else 0.0
        ends.append(min(latest, before + wish) if wish else latest)
    return ends


class Launcher:
    """Runs `specs`, in this order, until told to stop; stops them in the reverse order."""

    def __init__(
        self,
        specs: Sequence[Spec],
        env: Mapping[str, str],
        screen: Screen,
        *,
        backoff: Backoff = restarts.BACKOFF,
        stop_s: float = STOP_S,
    ) -> None:
        self._children = [_Child(spec) for spec in specs]
        self._env = dict(env)
        self._screen = screen
        self._backoff = backoff
        self._stop_s = stop_s
        self._stopping = asyncio.Event()
        self._exit_code = 0

    async def run(self, beside: Callable[[], Awaitable[None]]) -> int:
        """Supervise until a signal or a refused configuration; answers the exit status.

        `beside` runs next to the services and is cancelled when they stop.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # started by nohup: stays when the terminal goes
            loop.add_signal_handler(number, self._on_signal, number)
        tasks = [asyncio.ensure_future(self._supervise(child)) for child in self._children]
        aside = asyncio.ensure_future(beside())
        try:
            await self._until_stopping([*tasks, aside])
        finally:
            self._stopping.set()
            aside.cancel()
            await self._stop_all()
            await asyncio.wait([*tasks, aside], timeout=_REAP_S)
        return self._exit_code

    def _on_signal(self, number: int) -> None:
        if self._stopping.is_set():
            self._say("killing all services")
            for child in self._children:
                _kill(child)
            return
        self._say(f"stopping ({signal.Signals(number).name}); once more kills at once")
        self._stopping.set()

    async def _until_stopping(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        """Wait for the wish to stop; an error of our own in any task surfaces here."""

        async def wish() -> None:
            await self._stopping.wait()

        stop = asyncio.ensure_future(wish())
        waiting = {stop, *tasks}
        try:
            while not stop.done():
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            stop.cancel()

    async def _supervise(self, child: _Child) -> None:
        while not self._stopping.is_set():
            started = time.monotonic()
            code = await self._run_once(child)
            if self._stopping.is_set():
                return
            up_s = time.monotonic() - started
            decision = restarts.decide(
                code, up_s, child.failures, self._backoff, again=child.ran_before
            )
            if isinstance(decision, restarts.GiveUp):
                self._give_up(child)
                return
            child.failures, child.ran_before = decision.failures, True
            self._say(
                f"{child.spec.name} {restarts.ending(code)} after {up_s:.1f} s; "
                f"starting it again in {decision.delay_s:.1f} s"
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), decision.delay_s)

    def _give_up(self, child: _Child) -> None:
        name = child.spec.name
        self._say(f"{name} cannot use its configuration; stopping everything. It said:")
        for line in child.tail:
            self._say(f"  {line}")
        self._exit_code = restarts.CONFIGURATION_EXIT
        self._stopping.set()

    async def _run_once(self, child: _Child) -> int:
        """Start the service and wait for its end; answers its exit code."""
        child.tail.clear()
        process = await asyncio.create_subprocess_exec(
            *child.spec.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._env,
            start_new_session=True,
        )
        child.process = process
        if self._stopping.is_set():  # the wish came while it was being started
            _kill(child)
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for

        def show(line: str) -> None:
            child.tail.append(line)
            self._screen.line(child.spec.name, line)

        lines = asyncio.ensure_future(pump(process.stdout, show))
        code = await process.wait()
        # A grandchild may hold the pipe open a little longer than the service lived.
        await asyncio.wait([lines], timeout=_DRAIN_PIPE_S)
        lines.cancel()
        return code

    async def _stop_all(self) -> None:
        """SIGTERM one after the other, last started first; SIGKILL at each one's deadline.

        What one leaves of its time, the next ones have.
        """
        start = time.monotonic()
        stopping = list(reversed(self._children))
        within = deadlines([child.spec.stop_s for child in stopping], self._stop_s)
        for child, within_s in zip(stopping, within, strict=True):
            process = child.running
            if process is None:
                continue
            with suppress(ProcessLookupError):
                process.terminate()
            left_s = start + within_s - time.monotonic()
            try:
                await asyncio.wait_for(process.wait(), max(0.0, left_s))
            except TimeoutError:
                self._say(f"{child.spec.name} did not stop in time; killing it")
                _kill(child)
                await self._reap(child, process)

    async def _reap(self, child: _Child, process: asyncio.subprocess.Process) -> None:
        """Wait for a killed process, but not for ever: a driver can hold one in the kernel."""
        try:
            await asyncio.wait_for(process.wait(), _REAP_S)
        except TimeoutError:
            self._say(f"{child.spec.name} (process {process.pid}) is held by the kernel")

    def _say(self, text: str) -> None:
        self._screen.line(OWN, text)


def _kill(child: _Child) -> None:
    """SIGKILL to the service and to all that it started in its session's first group."""
    process = child.running
    if process is not None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
