"""Tokens of models that are not loaded, counted and shown in a process of its own.

Native code never runs in the model service. One process is kept, for the model asked about last: it
ends when another model is asked about, after a while without questions, and with this service. It
holds some 100 MiB of the host's memory and nothing of a card, so no lease stands for it.
"""

import asyncio
from collections.abc import Hashable
from dataclasses import replace
from typing import TypeVar

from chassis.errors import Fault, Reason
from hosting.hosted import Hosted
from hosting.instance import EngineHandle
from hosting.values import EngineHome, Kind
from services.llm.clients import Question, ask_engine

_IDLE_S = 60.0
_OPEN_S = 30.0
_ANSWER_S = 60.0
"""Waiting for the others, opening and counting together."""
_GRACE_S = 1.0
_MOST_ASKING = 64
Q = TypeVar("Q")
A = TypeVar("A")
_LOST = (Reason.SERVICE_UNAVAILABLE, Reason.DEADLINE_EXCEEDED)


class Counter:
    """Counts by the vocabulary alone; one question at a time."""

    def __init__(
        self, home: EngineHome, *, idle_s: float = _IDLE_S, most_asking: int = _MOST_ASKING
    ) -> None:
        self._home = replace(home, module="services.llm.vocabulary_main", ports=None)
        self._idle_s = idle_s
        self._turn = asyncio.Lock()
        self._asking, self._most_asking = 0, most_asking
        self._process: asyncio.Task[EngineHandle] | None = None
        self._serves: Hashable = None
        """The model and the state of its files that the process has read; None: none yet."""
        self._retiring: asyncio.Task[None] | None = None

    async def ask(self, hosted: Hosted, question: "Question[Q, A]", request: Q) -> A:
        """The answer for a model as its files stand. Raises Fault MODEL_FAILED, QUEUE_FULL, …."""
        if hosted.spec.problem:
            raise Fault(Reason.MODEL_FAILED, hosted.spec.problem, retry_after_s=2.0)
        if self._asking >= self._most_asking:
            raise Fault(
                Reason.QUEUE_FULL,
                f"{self._most_asking} requests already wait for tokens to be counted; try again "
                "shortly.",
                retry_after_s=1.0,
            )
        self._asking += 1
        try:
            async with asyncio.timeout(_ANSWER_S), self._turn:
                return await self._answer(hosted, question, request)
        except TimeoutError:
            late = f"Tokens were not counted within {_ANSWER_S:g} s; try again shortly."
            raise Fault(Reason.DEADLINE_EXCEEDED, late) from None
        finally:
            self._asking -= 1

    async def close(self) -> None:
        """End the process."""
        if self._retiring is not None:
            self._retiring.cancel()
        async with self._turn:
            await self._stop()

    async def _answer(self, hosted: Hosted, question: "Question[Q, A]", request: Q) -> A:
        if self._retiring is not None:
            self._retiring.cancel()
        try:
            engine = await self._opened(hosted)
            return await ask_engine(engine.address, question, request)
        except Fault as fault:
            if fault.reason in _LOST:
                self._serves = None
            raise
        finally:
            self._retiring = asyncio.create_task(self._retire())

    async def _opened(self, hosted: Hosted) -> EngineHandle:
        wanted = (hosted.spec.key, hosted.stamp)
        process = self._process
        if process is not None and self._serves == wanted and not process.result().over.is_set():
            return process.result()
        await self._stop()
        spec = replace(
            hosted.spec,
            engine={
                "path": hosted.spec.engine["path"],
                "context_tokens": hosted.spec.context_tokens,
                "writes": hosted.spec.kind is Kind.LANGUAGE,
            },
        )
        self._process = asyncio.create_task(EngineHandle.spawn(self._home, spec, None))
        # Shielded: a process that is being started must come to our hands to be stopped.
        engine = await asyncio.shield(self._process)
        await _until_ready(engine, self._home.silence_s)
        self._serves = wanted
        return engine

    async def _retire(self) -> None:
        await asyncio.sleep(self._idle_s)
        async with self._turn:
            await self._stop()

    async def _stop(self) -> None:
        self._serves = None
        if self._process is None:
            return
        await asyncio.wait([self._process])
        if self._process.exception() is None:
            await self._process.result().stop(_GRACE_S)
        self._process = None


async def _until_ready(engine: EngineHandle, silence_s: float) -> None:
    try:
        async with asyncio.timeout(_OPEN_S):
            while not (event := await engine.report(silence_s)).HasField("ready"):
                if event.HasField("failed"):
                    raise engine.failure(event.failed.reason, event.failed.message)
    except TimeoutError:
        raise Fault(
            Reason.MODEL_FAILED, f"Reading the vocabulary took longer than {_OPEN_S:g} s."
        ) from None
