"""Another file for a model, while the house runs.

 1. The path is inside the allowed directory and the header is whole: otherwise nothing happens.
 2. From here on the next load takes the new file, and its failure is no news (`hosting.trial`).
 3. What runs finishes; what comes meanwhile waits in the scheduler's queue.
 4. The scheduler loads the model, since every lease is its to obtain.
 5. When any of that fails, or the caller goes away, the former file and settings come back, and are
    loaded again if they were before.

The work is a task of its own: a caller that goes away is told nothing more, but what was begun is
brought to one of its two ends. One swap at a time for each model.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chassis import log
from chassis.errors import Fault, Reason
from cohabit.models.v1 import models_pb2 as pb
from hosting.host import ModelHost
from hosting.hosted import Hosted
from hosting.trial import Trial, check_free, on_trial
from hosting.wire import model_message
from services.llm.catalog import ModelFile
from services.llm.clients import Scheduler
from services.llm.swap_path import allowed_file

_STEPS = 64
_LOAD_S = 3600.0
"""Of a load, its waiting for memory included."""
_DRAINING = pb.SwapModelResponse.PHASE_DRAINING
_LOADING = pb.SwapModelResponse.PHASE_LOADING
_RESTORING = pb.SwapModelResponse.PHASE_RESTORING
_DONE = pb.SwapModelResponse.PHASE_DONE


class _GivenUpError(Exception):
    """The caller has gone away."""


@dataclass(slots=True)
class Steps:
    """What a caller is told of its swap; of too much, the latest."""

    given_up: asyncio.Event = field(default_factory=asyncio.Event)
    _queue: "asyncio.Queue[pb.SwapModelResponse | Fault | None]" = field(
        default_factory=lambda: asyncio.Queue(_STEPS)
    )

    def phase(self, phase: "pb.SwapModelResponse.Phase.ValueType", progress: float = 0.0) -> None:
        """What is being done."""
        self.tell(pb.SwapModelResponse(phase=phase, load_progress=progress))

    def tell(self, step: "pb.SwapModelResponse | Fault | None") -> None:
        """A step, why it failed, or its end."""
        if self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait(step)

    async def next(self) -> pb.SwapModelResponse | None:
        """The next step; None: it is over. Raises the Fault that it ended with."""
        step = await self._queue.get()
        if isinstance(step, Fault):
            raise step
        return step


@dataclass(slots=True)
class _Swap:
    """One swap."""

    host: ModelHost
    scheduler: Scheduler
    hosted: Hosted
    source: ModelFile
    path: Path
    steps: Steps = field(default_factory=Steps)
    left: bool = False
    """What was loaded before has left."""

    async def run(self, values: Mapping[str, str], drain_ms: int) -> None:
        """To one of its ends, which `steps` tell."""
        try:
            await self._swap(values, drain_ms)
        except _GivenUpError:
            log.get().info("swap given up", model=self._key)
        except Fault as fault:
            self.steps.tell(fault)
        except Exception as error:
            log.get().error("bug", exc_info=error)
            self.steps.tell(Fault(Reason.INTERNAL, "The swap failed; the service's log says how."))
        else:
            log.get().info("swapped", model=self._key, file=self.path.name)
            self.steps.tell(pb.SwapModelResponse(phase=_DONE, model=model_message(self.hosted)))
        finally:
            self.steps.tell(None)

    @property
    def _key(self) -> str:
        return self.hosted.spec.key

    async def _swap(self, values: Mapping[str, str], drain_ms: int) -> None:
        was_loaded = bool(self.hosted.tenancies)
        try:
            with on_trial(self.hosted) as trial:
                await self._try(trial, values, drain_ms)
        except _GivenUpError:
            await self._restored(reload=self.left and was_loaded)
            raise
        except Fault as fault:
            if not self.left:
                raise
            ending = await self._restored(reload=was_loaded)
            raise Fault(
                Reason.MODEL_FAILED,
                f"{self.path.name} cannot take the place of model '{self._key}': {fault.message} "
                f"{ending}",
                metadata={"cause": fault.reason.value},
            ) from None

    async def _try(self, trial: Trial, values: Mapping[str, str], drain_ms: int) -> None:
        if self.hosted.source is not self.source:
            just_now = f"The configuration of model '{self._key}' has just changed; try again."
            raise Fault(Reason.MODEL_BUSY, just_now, retry_after_s=1.0)
        former = self.source.overrides
        await self.host.adjusted(self._key, lambda: self.source.replace_file(self.path, values))
        try:
            self.steps.phase(_DRAINING)
            await self._step(trial, self.host.unload(self._key, drain_ms, force=False))
            self.left = True
            await self._step(trial, self._load(_LOADING))
        except (Fault, _GivenUpError):
            self.steps.phase(_RESTORING)
            # On trial still: a load of the new file that begins now is to be no news either.
            await self.host.adjusted(self._key, lambda: self.source.put_back(former))
            raise

    async def _step(self, trial: Trial, work: Coroutine[Any, Any, object]) -> None:
        """Until `work` is over, a load on trial has failed, or the caller goes away."""
        step = asyncio.create_task(work)
        events = (trial.over, self.steps.given_up)
        watches = [asyncio.create_task(event.wait()) for event in events]
        try:
            await asyncio.wait(
                (step, *watches), timeout=_LOAD_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            over = step.done()
            for task in (step, *watches):
                task.cancel()
            await asyncio.gather(step, *watches, return_exceptions=True)
        if trial.fault is not None:
            raise trial.fault
        if over:
            step.result()
        elif self.steps.given_up.is_set():
            raise _GivenUpError
        else:
            late = f"It did not get its turn within {_LOAD_S:g} s."
            raise Fault(Reason.DEADLINE_EXCEEDED, late)

    async def _load(self, phase: "pb.SwapModelResponse.Phase.ValueType") -> None:
        async with aclosing(self.scheduler.load(self._key)) as progress:
            async for share in progress:
                self.steps.phase(phase, share)

    async def _restored(self, *, reload: bool) -> str:
        """Have the former file serve again; what came of it, in one sentence."""
        try:
            async with asyncio.timeout(_LOAD_S):
                await self._clear_away()
                if reload:
                    await self._load(_RESTORING)
        except TimeoutError:
            return "The former file waits for its turn to be loaded again."
        except Fault as fault:
            return f"The former file cannot be loaded again yet: {fault.message}"
        return "The former file serves again." if reload else "The former file stands again."

    async def _clear_away(self) -> None:
        """What was loaded of the new file leaves; its requests have the service's time."""
        engine = self.hosted.spec.engine
        for tenancy in [one for one in self.hosted.tenancies if one.spec.engine != engine]:
            with suppress(Fault):  # it has left by itself
                await self.host.unload(self._key, 0, force=True, instance_id=tenancy.instance_id)


class Swapping:
    """The swaps of one service; `swap_dir` None: there are none."""

    def __init__(self, host: ModelHost, scheduler: Scheduler, swap_dir: Path | None) -> None:
        self._host, self._scheduler, self._swap_dir = host, scheduler, swap_dir
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Leave off; the engines end with the service anyway."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def begin(self, request: pb.SwapModelRequest) -> Steps:
        """Start a swap. Raises Fault MODEL_NOT_FOUND, MODEL_BUSY, NOT_IMPLEMENTED, and those of
        `allowed_file`.
        """
        hosted = self._host.get(request.key)
        source = hosted.source
        if self._swap_dir is None or not isinstance(source, ModelFile):
            raise Fault(
                Reason.NOT_IMPLEMENTED,
                "This service swaps no files: set `swap_dir` in its section of the configuration.",
            )
        check_free(hosted)
        path = allowed_file(self._swap_dir, request.path)
        swap = _Swap(self._host, self._scheduler, hosted, source, path)
        task = asyncio.create_task(swap.run(dict(request.overrides), request.drain_ms))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return swap.steps
