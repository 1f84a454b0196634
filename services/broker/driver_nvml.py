"""What is asked of NVIDIA's management library: which cards there are, their memory, who uses it.

Every function here blocks, possibly for good, and raises pynvml.NVMLError. Deadlines, back-off and
threads are `device_nvml`'s.

A card in MIG mode is not one pool: each of its instances is a card of its own here. A card that
does not tell its memory (the memory it shares with the host is the host's) cannot be lent from.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pynvml

from chassis import log
from services.broker.device import ProcessUse

_BYTES_PER_MIB = 1 << 20
_PROCESSES = (
    (
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
        pynvml.nvmlDeviceGetComputeRunningProcesses_v2,
    ),
    (
        pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses_v2,
    ),
)
"""Drivers before 510 have the second of each pair alone."""


@dataclass(frozen=True, slots=True)
class Card:
    """Which card: its index, and in MIG mode the instance."""

    index: int
    instance: int | None = None

    @property
    def name(self) -> str:
        """As leases name it: "gpu0", "gpu0.1"."""
        return f"gpu{self.index}" + ("" if self.instance is None else f".{self.instance}")


def cards() -> list[Card]:
    """Every card that can be lent from."""
    with _library():
        return [
            card for index in range(int(pynvml.nvmlDeviceGetCount())) for card in _cards_at(index)
        ]


class OpenCard:
    """One card and the library that knows it, open until `close`."""

    def __init__(self, card: Card) -> None:
        pynvml.nvmlInit()
        try:
            self._handle = _handle(card)
        except pynvml.NVMLError:
            pynvml.nvmlShutdown()
            raise

    def close(self) -> None:
        """Let go; the library counts who has it open, so this is done once."""
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def description(self) -> str:
        """What the maker calls it; empty when the driver does not tell."""
        return str(_optional(lambda: pynvml.nvmlDeviceGetName(self._handle)) or "")

    def memory_mib(self) -> tuple[int, int]:
        """Total and free."""
        memory = pynvml.nvmlDeviceGetMemoryInfo(self._handle)
        return memory.total // _BYTES_PER_MIB, memory.free // _BYTES_PER_MIB

    def processes(self) -> tuple[ProcessUse, ...]:
        """Who uses it, as far as the driver tells; one that computes and draws counts once."""
        used: dict[int, int] = {}
        for ask, older in _PROCESSES:
            found = _optional(partial(ask, self._handle))
            if found is None:
                found = _optional(partial(older, self._handle)) or ()
            for process in found:
                mib = (process.usedGpuMemory or 0) // _BYTES_PER_MIB
                used[process.pid] = max(mib, used.get(process.pid, 0))
        return tuple(ProcessUse(pid, mib, "") for pid, mib in used.items())


@contextmanager
def _library() -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _cards_at(index: int) -> list[Card]:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        mode = _optional(lambda: pynvml.nvmlDeviceGetMigMode(handle))
        if mode and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
            return _instances_of(index, handle)
        pynvml.nvmlDeviceGetMemoryInfo(handle)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_NoPermission) as error:
        log.get().warning("card not lent from", device=f"gpu{index}", error=str(error))
        return []
    except pynvml.NVMLError:  # lost for now, yet there
        pass
    return [Card(index)]


def _instances_of(index: int, handle: Any) -> list[Card]:
    most = _optional(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0
    found = [Card(index, instance) for instance in range(most)]
    return [card for card in found if _optional(partial(_handle, card))]


def _handle(card: Card) -> Any:
    handle = pynvml.nvmlDeviceGetHandleByIndex(card.index)
    if card.instance is None:
        return handle
    return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, card.instance)


def _optional(ask: Callable[[], Any]) -> Any:
    """What older drivers, other cards and missing rights do not tell is None."""
    try:
        return ask()
    except pynvml.NVMLError:
        return None
