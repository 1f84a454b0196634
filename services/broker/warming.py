"""Files brought into the page cache before somebody loads them: one call at a time, in order.

Host memory is looked at before each chunk. When less than the floor is available, warming ends by
itself: pages read now would push out others that are worth as much. Which files are worth it is the
caller's affair; how one is read is `warm_file`'s.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from chassis.errors import Fault, Reason
from services.broker import metrics
from services.broker.device_cpu import HostMemory, read_host
from services.broker.mailbox import Mailbox
from services.broker.warm_file import File, checked, warm_chunk

MAX_PATHS = 256
_MAX_CALLS = 8
_MAX_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one file is."""

    path: str
    done_bytes: int
    total_bytes: int
    stopped_short: bool = False


class Warmer:
    """Warms files below `models_dir`; `floor_of` says how much memory must stay available."""

    def __init__(
        self,
        models_dir: Path,
        floor_of: Callable[[int], int],
        *,
        host: Callable[[], HostMemory] = read_host,
    ) -> None:
        self._models_dir, self._floor_of, self._host = models_dir, floor_of, host
        self._turn = asyncio.Lock()
        self._calls: dict[asyncio.Task[None], Mailbox[Progress]] = {}
        self._lately: OrderedDict[str, Progress] = OrderedDict()
        # One thread: a read that outlives its cancelled call is waited for by the next one.
        self._thread = ThreadPoolExecutor(1, "warm")
        self._closed = False

    def lately(self) -> list[Progress]:
        """Files being warmed or warmed last, the newest at the end; at most 64."""
        return list(self._lately.values())

    async def warm(self, paths: Sequence[str]) -> AsyncGenerator[Progress, None]:
        """Warm `paths` in order, telling how far each is; closing it stops the work.

        A reader that is slow misses steps, and delays nobody. Faults: invalid_request,
        file_not_found, saturated.
        """
        if len(self._calls) >= _MAX_CALLS:
            raise Fault(
                Reason.SATURATED,
                f"{_MAX_CALLS} calls already warm files or wait for it; try again later.",
                retry_after_s=5.0,
            )
        # Twice the same path is warm after the first time.
        files = [
            await asyncio.to_thread(checked, path, self._models_dir)
            for path in dict.fromkeys(paths)
        ]
        box: Mailbox[Progress] = Mailbox(max(1, len(files)))
        task = asyncio.create_task(self._run(files, box), name="warm")
        self._calls[task] = box
        try:
            while (progress := await box.next()) is not None:
                yield progress
        finally:
            del self._calls[task]
            task.cancel()

    def close(self) -> None:
        """End the calls that run, and take no thread into the end of the process."""
        self._closed = True
        for task, box in self._calls.items():
            task.cancel()
            box.end(_stopping())
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self, files: Sequence[File], box: Mailbox[Progress]) -> None:
        try:
            async with self._turn:
                short = False
                for file in files:
                    short = await self._file(file, box, short=short)
        except Exception as error:  # the reader's to raise
            box.end(error)
        else:
            box.end()

    async def _file(self, file: File, box: Mailbox[Progress], *, short: bool) -> bool:
        """Warm one file, unless memory was `short` before it; whether it is now."""
        progress = Progress(file.asked, 0, file.size_bytes, short)
        while progress.done_bytes < progress.total_bytes and not short:
            self._tell(progress, box)
            if short := self._short():
                progress = replace(progress, stopped_short=True)
                break
            read = await self._chunk(file, progress.done_bytes)
            metrics.WARMED_BYTES.inc(read)
            done = progress.done_bytes + read
            # A file that has become shorter ends where it ends, and one that grew has grown.
            total = max(done, progress.total_bytes) if read else done
            progress = replace(progress, done_bytes=done, total_bytes=total)
        self._tell(progress, box)
        return short

    async def _chunk(self, file: File, at: int) -> int:
        if self._closed:
            raise _stopping()
        stop = threading.Event()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, warm_chunk, file, at, stop)
        finally:
            stop.set()

    def _short(self) -> bool:
        host = self._host()
        return host.available_mib < self._floor_of(host.total_mib)

    def _tell(self, progress: Progress, box: Mailbox[Progress]) -> None:
        self._lately[progress.path] = progress
        self._lately.move_to_end(progress.path)
        while len(self._lately) > _MAX_REMEMBERED:
            self._lately.popitem(last=False)
        box.put(progress.path, progress)


def _stopping() -> Fault:
    return Fault(Reason.SERVICE_UNAVAILABLE, "The broker is stopping; warm the files again later.")
