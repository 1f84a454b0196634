"""The disk as the shell uses it, without blocking: the store by one thread, files by others."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from chassis import log
from chassis.backoff import Backoff
from services.jobs.core.life import files_of
from services.jobs.core.values import Drop, Effect, Input, Job, Put, Remove
from services.jobs.files import Files
from services.jobs.store import Store

T = TypeVar("T")

_AGAIN = Backoff(first_s=0.1, factor=2.0, most_s=5.0)
_TRIES = 10
"""Half a minute in all."""


class Disk:
    """What is written is on the disk when a method returns."""

    def __init__(self, store: Store, files: Files) -> None:
        self._store, self._files = store, files
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="jobs-store")

    async def close(self) -> None:
        """Let go of the store."""
        await self._stored(self._store.close)
        self._writer.shutdown(wait=False)

    async def load(self) -> list[Job]:
        """Every job, oldest first; files that none of them needs are gone."""
        jobs = await self._stored(self._store.jobs)
        needed = {job.job_id: files_of(job) for job in jobs}
        if swept := await asyncio.to_thread(self._files.sweep, needed):
            log.get().info("files swept", files=len(swept))
        return jobs

    async def write(self, effects: Sequence[Effect], spec: bytes = b"") -> None:
        """Write what is to be written of a decision, all or nothing. Raises sqlite3.Error."""
        writes = [effect for effect in effects if isinstance(effect, Put | Remove)]
        if writes:
            await self._stored(lambda: self._store.write(writes, spec))

    async def write_surely(self, effects: Sequence[Effect]) -> None:
        """As `write`, tried again for a while: what was decided stands. Raises sqlite3.Error."""
        for tries in range(1, _TRIES):
            try:
                return await self.write(effects)
            except sqlite3.Error as error:
                log.get().warning("jobs cannot be written", error=str(error), tries=tries)
                await asyncio.sleep(_AGAIN.delay_s(tries))
        return await self.write(effects)

    async def clear(self, effects: Sequence[Effect]) -> None:
        """Delete the files that are needed no more, after that has been written."""
        for effect in effects:
            match effect:
                case Drop(job_id=job_id, names=names):
                    await asyncio.to_thread(self._files.drop, job_id, names)
                case Remove(job_id=job_id):
                    await asyncio.to_thread(self._files.remove, job_id)

    async def keep(self, job_id: str, inputs: Mapping[str, bytes]) -> tuple[Input, ...]:
        """Write the pictures that a job came with. Raises Fault; then none of them is left."""

        def write() -> tuple[Input, ...]:
            try:
                written = [self._files.write(job_id, name, data) for name, data in inputs.items()]
            except BaseException:
                self._files.remove(job_id)
                raise
            return tuple(Input(file.name, file.size_bytes) for file in written)

        return await asyncio.to_thread(write)

    async def discard(self, job_id: str) -> None:
        """Delete the pictures of a job that was not accepted."""
        await asyncio.to_thread(self._files.remove, job_id)

    async def spec(self, job_id: str) -> bytes | None:
        """What a job was asked for; None: it is gone."""
        return await self._stored(lambda: self._store.spec(job_id))

    async def pieces(
        self, job_id: str, name: str, offset_bytes: int
    ) -> AsyncGenerator[tuple[int, bytes], None]:
        """A file in pieces, each with its place. Raises OSError."""
        pieces = self._files.pieces(job_id, name, offset_bytes)
        try:
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                yield piece
        finally:
            pieces.close()

    async def _stored(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)
