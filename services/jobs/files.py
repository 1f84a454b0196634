"""The pictures of jobs, as files: `files/JOB/NAME`.

A file is written under a passing name, brought to the disk and only then named, so that one with
its true name is whole. Every method blocks on the disk. Which files are needed is the core's to
say; what no job needs was left by a crash, and is swept at the start.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chassis.errors import Fault, Reason

PIECE_BYTES = 1 << 20
_DRAFT = ".draft"
_SPARE_BYTES = 16 << 20
"""Of the disk, left to the database beside it: on a full disk nothing could be recorded, neither
that a job has failed nor that its files are to go."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is on the disk."""

    name: str
    size_bytes: int
    sha256: bytes


class Files:
    """The folders of all jobs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, job_id: str, name: str, data: bytes) -> Written:
        """Keep a file. Raises Fault STORAGE_FULL, SERVICE_UNAVAILABLE; then nothing is left."""
        path = self._folder / job_id / name
        draft = path.with_name(name + _DRAFT)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _check_room(path.parent, len(data))
            _write_through(draft, data)
            draft.replace(path)
            _sync_folder(path.parent)
            _sync_folder(self._folder)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            raise _unwritable(error) from error
        return Written(name, len(data), hashlib.sha256(data).digest())

    def read(self, job_id: str, name: str) -> bytes:
        """A whole file. Raises OSError."""
        return (self._folder / job_id / name).read_bytes()

    def pieces(
        self, job_id: str, name: str, offset_bytes: int
    ) -> Generator[tuple[int, bytes], None, None]:
        """The file from an offset on, in pieces, each with its place. Raises OSError."""
        with (self._folder / job_id / name).open("rb") as file:
            file.seek(offset_bytes)
            while piece := file.read(PIECE_BYTES):
                yield offset_bytes, piece
                offset_bytes += len(piece)

    def drop(self, job_id: str, names: tuple[str, ...]) -> None:
        """Delete files; those that are gone already are no matter."""
        folder = self._folder / job_id
        for name in names:
            (folder / name).unlink(missing_ok=True)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    def remove(self, job_id: str) -> None:
        """Delete all files of a job."""
        shutil.rmtree(self._folder / job_id, ignore_errors=True)

    def sweep(self, needed: Mapping[str, Mapping[str, int]]) -> list[str]:
        """Delete what no job needs, given the needed files by job; what went, for the log."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        gone: list[str] = []
        for folder in filter(Path.is_dir, self._folder.iterdir()):
            names = needed.get(folder.name, {})
            orphans = tuple(path.name for path in folder.iterdir() if path.name not in names)
            gone += [f"{folder.name}/{name}" for name in orphans]
            self.drop(folder.name, orphans)
        return gone


def _check_room(folder: Path, size_bytes: int) -> None:
    if shutil.disk_usage(folder).free < size_bytes + _SPARE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _write_through(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unwritable(error: OSError) -> Fault:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Fault(
            Reason.STORAGE_FULL,
            "The disk that jobs are kept on is full; free some space and try again.",
            retry_after_s=60.0,
        )
    return Fault(
        Reason.SERVICE_UNAVAILABLE,
        f"The job service cannot write its files ({error.strerror}); see to its folder.",
        retry_after_s=10.0,
    )
