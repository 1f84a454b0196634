"""Leases across restarts: an append-only file of JSON lines, `state_dir/broker.journal`.

Grants are on the disk (fsync) before anybody hears of them. Renewals and releases are handed to
the kernel: they survive the end of this process, and after the end of the whole host no holder is
left whose lease could matter. What is unreadable at the end of the file was torn by a crash, and
is cut off; an unreadable line before a readable one means the file is not ours, and the broker
refuses to guess.

Decides nothing: what an entry means is the ledger's affair.
"""

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from chassis import log
from services.broker.core import Entry, Granted, Lease, Released, Renewed

NAME = "broker.journal"
_COMPACT_BYTES = 1 << 20


class JournalError(Exception):
    """The journal cannot be used; the text says why and what to do."""


class _Line(msgspec.Struct, omit_defaults=True):
    """One line: exactly one of the fields is set."""

    grant: Granted | None = None
    renew: Renewed | None = None
    release: Released | None = None


class Journal:
    """The open journal. Its methods block on the disk, and are called one at a time."""

    def __init__(self, state_dir: Path, *, compact_bytes: int = _COMPACT_BYTES) -> None:
        """Open, or begin, the journal in `state_dir` and lock it. Raises JournalError."""
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = state_dir / NAME
        self._compact_bytes = compact_bytes
        self._lock = _locked(state_dir / f"{NAME}.lock")
        self._fd = _open(self._path)
        self._good_bytes = os.fstat(self._fd).st_size
        self._limit_bytes = self._good_bytes + compact_bytes
        self._torn = False

    def entries(self) -> list[Entry]:
        """Everything written, in order; a torn tail is cut off. Raises JournalError."""
        *lines, rest = self._path.read_bytes().split(b"\n")
        found: list[Entry] = []
        torn_bytes, unreadable = len(rest), 0
        for number, line in enumerate(lines, 1):
            entry = _decoded(line)
            if entry is None:
                unreadable = unreadable or number
                torn_bytes += len(line) + 1
            elif unreadable:
                raise JournalError(
                    f"{self._path}:{unreadable}: this is not a line of a lease journal; stop "
                    "every engine and remove the file, or put back the right one"
                )
            else:
                found.append(entry)
        if torn_bytes:
            self._cut_tail(torn_bytes)
        return found

    def append(self, entry: Entry) -> None:
        """Write one entry. Raises OSError, and then nothing of it remains."""
        if self._torn:
            self._cut_back()
        line = _encoded(entry)
        try:
            _write_all(self._fd, line)
            if isinstance(entry, Granted):
                os.fsync(self._fd)
        except OSError:
            self._torn = True
            self._cut_back()
            raise
        self._good_bytes += len(line)

    @property
    def wants_compaction(self) -> bool:
        """True when the file has outgrown what it is about."""
        return self._good_bytes > self._limit_bytes

    def compact(self, leases: Iterable[Lease], now_ms: int) -> None:
        """Replace the file by one that holds the live leases alone. Raises OSError."""
        # Whether or not this works, the next attempt waits for as much again to be written.
        self._limit_bytes = self._good_bytes + self._compact_bytes
        draft = self._path.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        fd = _open(draft)
        try:
            _write_all(fd, b"".join(_encoded(Granted(now_ms, lease)) for lease in leases))
            os.fsync(fd)
            draft.replace(self._path)
        except OSError:
            os.close(fd)
            raise
        os.close(self._fd)
        self._fd, self._good_bytes, self._torn = fd, os.fstat(fd).st_size, False
        self._limit_bytes = self._good_bytes + max(self._compact_bytes, self._good_bytes)
        _sync_dir(self._path.parent)

    def close(self) -> None:
        """Let go of the file and its lock."""
        os.close(self._fd)
        os.close(self._lock)

    def _cut_tail(self, torn_bytes: int) -> None:
        log.get().warning("journal torn", path=str(self._path), cut_off_bytes=torn_bytes)
        self._good_bytes -= torn_bytes
        self._cut_back()

    def _cut_back(self) -> None:
        os.ftruncate(self._fd, self._good_bytes)
        self._torn = False


def _encoded(entry: Entry) -> bytes:
    match entry:
        case Granted():
            line = _Line(grant=entry)
        case Renewed():
            line = _Line(renew=entry)
        case Released():
            line = _Line(release=entry)
    return msgspec.json.encode(line) + b"\n"


def _decoded(line: bytes) -> Entry | None:
    try:
        read = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return read.grant or read.renew or read.release


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _locked(path: Path) -> int:
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise JournalError(
            f"{path}: another broker keeps its leases here; stop it, or give this one a "
            "state_dir of its own"
        ) from None
    return fd


def _sync_dir(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
