"""One file into the page cache, a chunk at a time. Everything here blocks; it runs on a thread.

posix_fadvise(WILLNEED) says what is coming, so that the disk has a deep queue. The kernel takes no
more of one such call than a read-ahead window (mm/readahead.c, force_page_cache_ra): of 64 MiB
asked for at once it reads a few. Hence small steps; and the chunk is then read through, so that
done means done.
"""

import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path

from chassis.errors import Fault, Reason

CHUNK_BYTES = 64 << 20
_STEP_BYTES = 128 << 10
"""Linux's usual read_ahead_kb."""
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class File:
    """A file that may be warmed."""

    asked: str
    """As the caller wrote it."""
    path: Path
    size_bytes: int


def checked(asked: str, models_dir: Path) -> File:
    """The file that `asked` means. Faults: invalid_request, file_not_found."""
    if not asked.startswith("/") or "\0" in asked:
        raise Fault(Reason.INVALID_REQUEST, f"{asked!r} is not an absolute path; write it in full.")
    try:
        path, below = Path(asked).resolve(), models_dir.resolve()
        if not path.is_relative_to(below):
            raise Fault(
                Reason.INVALID_REQUEST,
                f"{asked!r} is not below {below}; only files of models_dir are warmed.",
            )
        found = path.stat()
    except (OSError, RuntimeError) as error:
        raise unreadable(asked, error) from None
    if not stat.S_ISREG(found.st_mode):
        raise Fault(Reason.INVALID_REQUEST, f"{asked!r} is not a file; name files, not folders.")
    return File(asked, path, found.st_size)


def warm_chunk(file: File, at: int, stop: threading.Event) -> int:
    """Bring the chunk at `at` into the page cache; bytes that were read, 0 at the file's end.

    Ends early once `stop` is set. Faults: as `unreadable`.
    """
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return _warm(fd, at, stop)
        finally:
            os.close(fd)
    except OSError as error:
        raise unreadable(file.asked, error) from None


def _warm(fd: int, at: int, stop: threading.Event) -> int:
    for offset in range(at, at + CHUNK_BYTES, _STEP_BYTES):
        os.posix_fadvise(fd, offset, _STEP_BYTES, os.POSIX_FADV_WILLNEED)
    into, done = bytearray(_READ_BYTES), 0
    while done < CHUNK_BYTES and not stop.is_set():
        read = os.preadv(fd, [into], at + done)
        if not read:
            break
        done += read
    return done


def unreadable(asked: str, error: OSError | RuntimeError) -> Fault:
    """What a failure to find or read a file means to the caller."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Fault(Reason.FILE_NOT_FOUND, f"There is no file {asked!r}.")
    said = error.strerror if isinstance(error, OSError) else "its links go in a circle"
    if isinstance(error, PermissionError):
        return Fault(
            Reason.INVALID_REQUEST, f"{asked!r} cannot be read ({said}); let the broker read it."
        )
    return Fault(Reason.SERVICE_UNAVAILABLE, f"{asked!r} cannot be read ({said}).")
