"""The file a pull writes to until it is whole: `NAME.part`, locked, resumable, renamed at the end.

The lock is on the part itself, so nothing is left beside the models: a second pull of the same
file is refused while the first one runs. `NAME.part.json` remembers the server's validator.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from cli.console import Refused, size

_CHUNK_BYTES = 1024 * 1024
_MARGIN = 0.05
"""Of what is needed; a file system that is full to the last block serves nobody."""


class Part:
    """An unfinished file: what of it is here, and the hash of that."""

    def __init__(self, target: Path, file: BinaryIO) -> None:
        self.target = target
        self._file = file
        self._path = part_of(target)
        self._note = self._path.with_name(f"{self._path.name}.json")
        self._hash = hashlib.sha256()
        self.done = 0
        for data in chunks(file):
            self._hash.update(data)
            self.done += len(data)

    @property
    def sha256(self) -> str:
        """Of the bytes that are here."""
        return self._hash.hexdigest()

    @property
    def path(self) -> Path:
        """Where the bytes are."""
        return self._path

    @property
    def validator(self) -> str:
        """What the server called the version these bytes are of; empty: unknown."""
        try:
            return str(json.loads(self._note.read_text())["validator"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def remember(self, validator: str) -> None:
        """Keep the server's name of this version for a later resume."""
        self._note.write_text(json.dumps({"validator": validator}))

    def write(self, data: bytes) -> None:
        """Append."""
        self._file.write(data)
        self._hash.update(data)
        self.done += len(data)

    def flush(self) -> None:
        """Make what was written readable by path."""
        self._file.flush()

    def restart(self) -> None:
        """Forget what is here."""
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256()
        self.done = 0
        self._note.unlink(missing_ok=True)

    def check(self, expected: str | None, label: str) -> None:
        """Compare the hash; bytes that are wrong are removed, since resuming cannot mend them."""
        if expected is not None and self.sha256 != expected:
            found = self.sha256
            self.discard()
            raise Refused(f"{label} has sha256 {found}, but {expected} was expected; not kept.")

    def finish(self) -> None:
        """Give the file its final name, whole and on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._path.replace(self.target)
        self._note.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove the part."""
        self._path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)


def part_of(target: Path) -> Path:
    """Where `target` is written until it is whole."""
    return target.with_name(f"{target.name}.part")


@contextmanager
def open_part(target: Path) -> Iterator[Part]:
    """The locked part of `target`, with what an earlier pull left. Raises Refused if it is taken.

    On an error the part stays for resuming, unless nothing has arrived.
    """
    path = part_of(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"{target.name} is being pulled already; wait for that.") from None
        if not _same_file(path, file):  # the other pull finished between our open and our lock
            raise Refused(f"{target.name} was just pulled by another command.")
        file.seek(0)
        part = Part(target, file)
        try:
            yield part
        finally:
            file.flush()
            if part.done == 0 and _same_file(path, file):
                part.discard()


def ensure_room(folder: Path, needed: int) -> None:
    """Raises Refused when `folder`'s disk has not `needed` bytes and a margin free."""
    free, wanted = shutil.disk_usage(folder).free, round(needed * (1 + _MARGIN))
    if free < wanted:
        raise Refused(
            f"The disk of {folder} is too small: {size(wanted)} are needed, {size(free)} are free."
        )


def sha256_of(path: Path) -> str:
    """The hash of a whole file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def chunks(file: IO[bytes]) -> Iterator[bytes]:
    """What is left of an open file, a mebibyte at a time."""
    while data := file.read(_CHUNK_BYTES):
        yield data


def _same_file(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
