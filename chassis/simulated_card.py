"""A pretended card: a file that the processes of one host share, in place of device memory.

The broker creates it; simulated engines take memory up and give it back. As with a driver, what a
process held is free once it has ended, however it ended: an entry counts only while the process
that made it lives (pid and start time; an exited one that nobody has reaped yet is not alive).
Processes that share a card share a pid namespace.

The file is replaced whole under a lock, so that a kill at any moment leaves the old state or the
new one. Readers need no lock. Methods block for microseconds, and on the lock for at most
`lock_wait_s`. What may be lent is the broker's affair and stays out of here.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from chassis.backoff import Backoff

_MAX_ENTRIES = 4096
_MAX_NAME_CHARS = 256
_MAX_FILE_BYTES = 8 << 20
_RETRY = Backoff(first_s=0.0002, factor=1.5, most_s=0.01)
# Fields of /proc/<pid>/stat, counted from the state, which follows the name in parentheses.
_STATE, _START_TIME = 0, 19


class CardError(Exception):
    """The card cannot be used; the text is one sentence that says why and what to do."""


class OutOfMemory(Exception):
    """The card has not that much free: what a driver says when a load goes wrong."""


class Holding(msgspec.Struct, frozen=True):
    """What one process holds under one name."""

    pid: int
    began: int
    """When the process started, in clock ticks since the boot: pids are used again."""
    name: str
    mib: int


class _Contents(msgspec.Struct):
    capacity_mib: int
    out_of_memory_count: int
    held: list[Holding]

    @property
    def free_mib(self) -> int:
        return max(0, self.capacity_mib - sum(each.mib for each in self.held))


class SimulatedCard:
    """The card at `path`. Any number of objects, threads and processes may use the same one."""

    def __init__(self, path: Path, *, lock_wait_s: float = 5.0) -> None:
        self._path = path
        self._lock = path.with_name(f"{path.name}.lock")
        self._draft = path.with_name(f"{path.name}.draft")
        self._lock_wait_s = lock_wait_s

    def create(self, capacity_mib: int) -> None:
        """Make the card, or give the one that is there a new size.

        What living processes hold stays, and so does the count of failures. Raises CardError.
        """
        if capacity_mib <= 0:
            raise ValueError(f"expected a capacity above 0 MiB, got {capacity_mib}")
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked():
            try:
                card = self._read()
            except CardError:  # none yet, or not one of ours
                card = _Contents(capacity_mib, 0, [])
            card.capacity_mib = capacity_mib
            self._write(card)

    @property
    def capacity_mib(self) -> int:
        """All there is. Raises CardError."""
        return self._read().capacity_mib

    @property
    def out_of_memory_count(self) -> int:
        """How often an allocation has failed since the card was made. Raises CardError."""
        return self._read().out_of_memory_count

    def used_by(self) -> tuple[Holding, ...]:
        """What living processes hold. Raises CardError."""
        return tuple(self._read().held)

    def used_mib(self) -> int:
        """The sum of what living processes hold. Raises CardError."""
        return sum(each.mib for each in self._read().held)

    def allocate(self, name: str, mib: int) -> None:
        """Let this process hold `mib` under `name`, be that more or less than before.

        Raises OutOfMemory (counted in the file; what was held before stays) and CardError.
        """
        if mib < 0:
            raise ValueError(f"expected 0 MiB or more to hold, got {mib}")
        with self._locked():
            card = self._read()
            had_mib, free_mib = _take_out(card, name), card.free_mib
            if mib > max(had_mib, free_mib):
                self._fail(card, name, had_mib)
                raise OutOfMemory(
                    f"{mib} MiB are wanted for {name!r} and the card has {free_mib} MiB for it"
                )
            self._put_back(card, name, mib)

    def take(self, name: str, mib: int, leave_mib: int = 0) -> int:
        """Let this process hold as much as there is of `mib` under `name`; answers how much.

        Never takes of the last `leave_mib` that are free, never gives back what it has, and
        failing to get all is no failure. Raises CardError.
        """
        with self._locked():
            card = self._read()
            had_mib = _take_out(card, name)
            held_mib = max(had_mib, min(mib, card.free_mib - leave_mib))
            if held_mib != had_mib:
                self._put_back(card, name, held_mib)
            return held_mib

    def free(self, name: str) -> None:
        """Give back what this process holds under `name`, if anything. Raises CardError."""
        self.allocate(name, 0)

    def _fail(self, card: _Contents, name: str, had_mib: int) -> None:
        card.out_of_memory_count += 1
        self._put_back(card, name, had_mib)

    def _put_back(self, card: _Contents, name: str, mib: int) -> None:
        pid = os.getpid()
        began = _start_time(pid)
        if began is None:
            raise CardError("/proc tells nothing of this process; mount it.")
        if len(card.held) >= _MAX_ENTRIES or len(name) > _MAX_NAME_CHARS:
            raise CardError(
                f"{self._path}: expected names of at most {_MAX_NAME_CHARS} characters and at "
                f"most {_MAX_ENTRIES} of them in use; free some first."
            )
        if mib:
            card.held.append(Holding(pid, began, name, mib))
        self._write(card)

    def _read(self) -> _Contents:
        try:
            with self._path.open("rb") as file:
                raw = file.read(_MAX_FILE_BYTES)
        except FileNotFoundError:
            raise self._missing() from None
        except OSError as error:
            raise CardError(f"{self._path} cannot be read: {error.strerror}.") from None
        try:
            card = msgspec.json.decode(raw, type=_Contents)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise CardError(
                f"{self._path} is not a simulated card; restart the broker, which makes it anew."
            ) from None
        alive = {pid: _start_time(pid) for pid in {each.pid for each in card.held}}
        card.held = [each for each in card.held if alive[each.pid] == each.began]
        return card

    def _missing(self) -> CardError:
        return CardError(
            f"{self._path} is not there: the broker makes it when it starts with "
            "`device: simulated`; start the broker first."
        )

    def _write(self, card: _Contents) -> None:
        self._draft.write_bytes(msgspec.json.encode(card))
        self._draft.replace(self._path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._wait_for(fd)
                yield
            finally:
                os.close(fd)  # and with it the lock, as when the process dies
        except FileNotFoundError:
            raise self._missing() from None
        except OSError as error:
            raise CardError(f"{self._path} cannot be used: {error.strerror}.") from None

    def _wait_for(self, fd: int) -> None:
        deadline, tries = time.monotonic() + self._lock_wait_s, 0
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise CardError(
                        f"{self._lock} has been held for {self._lock_wait_s:g} s: a process that "
                        "uses the card is stopped; let it go on, or end it."
                    ) from None
                tries += 1
                time.sleep(_RETRY.delay_s(tries))
            else:
                return


def _take_out(card: _Contents, name: str) -> int:
    """Remove this process's entry of that name; what it held."""
    pid = os.getpid()
    mine = [each for each in card.held if (each.pid, each.name) == (pid, name)]
    card.held = [each for each in card.held if (each.pid, each.name) != (pid, name)]
    return sum(each.mib for each in mine)


def _start_time(pid: int) -> int | None:
    """Clock ticks from the boot to the start of a living process; None for any other."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[_STATE] in (b"Z", b"X") else int(fields[_START_TIME])
