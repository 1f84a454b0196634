"""The last answers of 5xx, kept in a ring of fixed size: what broke, when, and for which request.

A ring is a piece of memory, which may be a file's: then every worker of the edge has one of its own
in a folder, each of them can tell of all, and what a worker saw outlives it.
"""

import mmap
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

SLOTS: Final = 32
_SLOT_BYTES = 2048
_LENGTH_BYTES = 2
_COUNT_BYTES = 8
_RING_BYTES = _COUNT_BYTES + SLOTS * _SLOT_BYTES
_MOST_MESSAGE_CHARS = 300
_NAME = "errors-{worker}.ring"


def now_utc() -> str:
    """ISO 8601, with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Failure(msgspec.Struct, frozen=True):
    """An answer of 5xx, or a stream that failed in such a way after it had begun."""

    at: str
    """When it ended: ISO 8601, UTC."""
    request_id: str
    method: str
    route: str
    """The template of the route; `-`: there is none."""
    status: int
    reason: str
    message: str
    """What the client was told; empty where that may quote what it had sent."""


class FailureList(msgspec.Struct):
    """The last answers of 5xx, the newest first."""

    data: list[Failure]
    object: Literal["list"] = "list"


class Ring:
    """The newest failures of one process; `memory` has `_RING_BYTES` bytes."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    @classmethod
    def in_memory(cls) -> "Ring":
        """One that nobody else can read."""
        return cls(mmap.mmap(-1, _RING_BYTES))

    @classmethod
    def in_file(cls, path: Path) -> "Ring":
        """One that goes on where the file ends. Raises OSError."""
        with path.open("a+b") as file:
            file.truncate(_RING_BYTES)
            return cls(mmap.mmap(file.fileno(), _RING_BYTES))

    def add(self, failure: Failure) -> None:
        """Keep it, in place of the oldest."""
        memory = self._memory
        count = int.from_bytes(memory[:_COUNT_BYTES], "big")
        at = _COUNT_BYTES + count % SLOTS * _SLOT_BYTES
        raw = _encoded(failure)
        memory[at : at + _LENGTH_BYTES] = len(raw).to_bytes(_LENGTH_BYTES, "big")
        memory[at + _LENGTH_BYTES : at + _LENGTH_BYTES + len(raw)] = raw
        memory[:_COUNT_BYTES] = (count + 1).to_bytes(_COUNT_BYTES, "big")

    def all(self) -> list[Failure]:
        """What is in it, in no order."""
        return _read(self._memory[:])


def _encoded(failure: Failure) -> bytes:
    short = msgspec.structs.replace(failure, message=failure.message[:_MOST_MESSAGE_CHARS])
    raw = msgspec.json.encode(short)
    if len(raw) + _LENGTH_BYTES <= _SLOT_BYTES:
        return raw
    return msgspec.json.encode(Failure(failure.at, "", "", "-", failure.status, failure.reason, ""))


def _read(memory: bytes) -> list[Failure]:
    found = []
    for slot in range(SLOTS):
        at = _COUNT_BYTES + slot * _SLOT_BYTES
        size = int.from_bytes(memory[at : at + _LENGTH_BYTES], "big")
        at += _LENGTH_BYTES
        try:
            found.append(msgspec.json.decode(memory[at : at + size], type=Failure))
        except msgspec.DecodeError:
            continue  # empty, or being written this very moment by another worker
    return found


class Failures:
    """The newest failures of the edge, over all its workers."""

    def __init__(self, folder: Path | None = None, worker: str = "0") -> None:
        self._folder = folder
        if folder is None:
            self._own = Ring.in_memory()
        else:
            self._own = Ring.in_file(folder / _NAME.format(worker=worker))
        self.add = self._own.add

    def latest(self, most: int = SLOTS) -> list[Failure]:
        """The newest first. Reads files: call it on a thread."""
        found = sorted(self._all(), key=lambda one: one.at, reverse=True)
        return found[:most]

    def _all(self) -> Iterable[Failure]:
        if self._folder is None:
            return self._own.all()
        rings = self._folder.glob(_NAME.format(worker="*"))
        return [failure for path in rings for failure in _read(path.read_bytes())]
