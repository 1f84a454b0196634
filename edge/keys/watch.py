"""The file of keys, read again when it changes, as long as the edge runs.

A file that cannot be used changes nothing: the keys that were read before go on. One that is gone
takes its keys with it, as it would after a restart; but not at the first look, because editors
and deployments that put a new file in place may leave none for a moment.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from chassis import log
from chassis.config import ConfigError
from edge.keys.file import read_keys
from edge.keys.keyring import Keyring

LOOK_S = 1.0
_GONE_LOOKS = 2

_Stamp = tuple[int, ...]
_GONE: _Stamp = ()
_UNREAD: _Stamp = (-1,)


class KeysFile:
    """The keys as they stand, and what is wrong with their file."""

    def __init__(self, path: Path) -> None:
        """Read it. Raises ConfigError; a file that is not there has no keys."""
        self._path = path
        self._stamp = _stamp(path)
        self._gone_looks = 0
        self.keyring = Keyring(read_keys(path))
        self._problem = ""

    def problems(self) -> list[str]:
        """What people should know of it, in sentences."""
        return [self._problem] if self._problem else []

    async def look(self) -> None:
        """Read it again if it has changed."""
        stamp = await asyncio.to_thread(_stamp, self._path)
        self._gone_looks = self._gone_looks + 1 if stamp == _GONE else 0
        if stamp == self._stamp or 0 < self._gone_looks < _GONE_LOOKS:
            return
        try:
            keys = await asyncio.to_thread(read_keys, self._path)
        except ConfigError as error:
            self._refuse(str(error))
            # What the system refuses may come right without a change of the file: no descriptor
            # may have been left. A key that was taken away must not stay for that.
            self._stamp = _UNREAD if isinstance(error.__cause__, OSError) else stamp
            return
        self._stamp = stamp
        self.keyring, self._problem = Keyring(keys), ""
        log.get().info("keys read", keys=len(keys))

    def _refuse(self, why: str) -> None:
        problem = f"The file of API keys cannot be used, its former keys are: {why}."
        if problem != self._problem:
            log.get().error("keys file refused", why=why)
        self._problem = problem

    async def follow(self) -> None:
        """Look, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
            except Exception:  # one look that failed must not be the last: keys are revoked by it
                log.get().exception("bug")


@asynccontextmanager
async def following(path: Path) -> AsyncIterator[KeysFile]:
    """The file, followed until the block ends. Raises ConfigError when it cannot be used now."""
    file = await asyncio.to_thread(KeysFile, path)
    task = asyncio.create_task(file.follow(), name="keys-file")
    try:
        yield file
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _stamp(path: Path) -> _Stamp:
    """What changes when the file does; nothing when it is not there."""
    try:
        seen = path.stat()
    except FileNotFoundError:
        return _GONE
    except OSError as error:  # it cannot be read now, which reading it says better
        return (error.errno or 0,)
    return seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino
