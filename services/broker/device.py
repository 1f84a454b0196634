"""What a device is to the broker: something that can be read. Adapters are in `device_*.py`."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class DeviceKind(IntEnum):
    """What sort of memory is counted on; the numbers are those of the contract."""

    CPU = 1
    NVML = 2
    SIMULATED = 3


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What one process uses of a device, as its driver tells it."""

    pid: int
    used_mib: int
    """0 where the driver does not tell."""
    name: str


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """A device at one moment."""

    total_mib: int
    free_mib: int | None
    """As the device measures it; None where holders' reports are the only measure."""
    reachable: bool = True
    """False when the driver does not answer; the figures are then the last known ones."""
    retry_at_unix_ms: int = 0
    """When the driver will be asked again; 0 while reachable."""


class Device(Protocol):
    """One device. Its methods answer within their own deadline and never raise."""

    @property
    def name(self) -> str:
        """As leases name it, e.g. "gpu0", "cpu"."""

    @property
    def kind(self) -> DeviceKind:
        """What sort it is."""

    @property
    def description(self) -> str:
        """For people."""

    async def read(self, now_ms: int, promised_mib: int) -> DeviceReading:
        """How it stands now. `promised_mib` is lent and not in use yet."""

    async def processes(self) -> tuple[ProcessUse, ...]:
        """Who uses it, where somebody tells: for people, and no part of any decision."""
