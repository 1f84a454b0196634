"""Host memory as the budget, for hosts without a card.

Capacity is the least of what is configured, what the control groups allow and MemTotal. Use is what
holders report. MemAvailable is no ledger: memory-mapped weights are page cache, which it counts as
available although evicting them would stop the model that reads them.
"""

from dataclasses import dataclass
from pathlib import Path

from services.broker.device import DeviceKind, DeviceReading, ProcessUse

_KIB_PER_MIB = 1024
_BYTES_PER_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Two lines of /proc/meminfo."""

    total_mib: int
    available_mib: int


def read_host(proc: Path = Path("/proc")) -> HostMemory:
    """The host's memory according to the kernel."""
    lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    kib = {words[0]: int(words[1]) for words in lines if len(words) > 1}
    return HostMemory(kib["MemTotal:"] // _KIB_PER_MIB, kib["MemAvailable:"] // _KIB_PER_MIB)


def cgroup_limit_mib(
    proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """The tightest memory limit on this process, of control groups v1 or v2; None without one.

    A limit of any ancestor binds as well. In a container the path of the group may lie outside of
    what is mounted: then the mount's root is the group.
    """
    limits: list[int] = []
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            limits += _limits(cgroup, path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(cgroup / "memory", path, "memory.limit_in_bytes")
    return min(limits) // _BYTES_PER_MIB if limits else None


class CpuDevice:
    """Host memory. Reads small kernel files, which does not block."""

    name = "cpu"
    kind = DeviceKind.CPU
    description = "Host memory"

    def __init__(
        self,
        capacity_mib: int | None = None,
        *,
        proc: Path = Path("/proc"),
        cgroup: Path = Path("/sys/fs/cgroup"),
    ) -> None:
        self._capacity_mib, self._proc, self._cgroup = capacity_mib, proc, cgroup

    async def read(self, now_ms: int, promised_mib: int) -> DeviceReading:  # noqa: ARG002
        """Capacity as it is now: limits may be changed while we run."""
        bounds = (
            self._capacity_mib,
            cgroup_limit_mib(self._proc, self._cgroup),
            read_host(self._proc).total_mib,
        )
        return DeviceReading(min(b for b in bounds if b is not None), free_mib=None)

    async def processes(self) -> tuple[ProcessUse, ...]:
        """None: every process of the host uses its memory."""
        return ()


def _limits(mount: Path, path: str, name: str) -> list[int]:
    group = mount / path.lstrip("/")
    groups = [group, *group.parents]
    groups = groups[: groups.index(mount) + 1] if mount in groups else [mount]
    words = [word for g in groups for word in _lines(g / name)]
    # v2 writes "max" for no limit; v1 writes a number near 2^63, which min() passes over.
    return [int(word) for word in words if word.isdigit()]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
