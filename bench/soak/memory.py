"""Resident memory of a house's processes by their role, while it works."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import psutil

_BYTES = 1024 * 1024
ENGINES, LAUNCHER, OTHERS = "engines", "launcher", "others"
_ROLES = {
    "services.llm.engine_main": ENGINES,
    "services.llm": "llm",
    "services.scheduler": "scheduler",
    "services.broker": "broker",
    "edge": "edge",
    "edge.workers.worker": "edge",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory at one moment, in MiB by role."""

    at_s: float
    """Since the first request."""
    mib: dict[str, float]

    @property
    def total_mib(self) -> float:
        """Of all processes together; pages that several of them share count for each."""
        return sum(self.mib.values())


def sample(launcher_pid: int, at_s: float) -> Sample:
    """The launcher and all that descends from it."""
    mib: defaultdict[str, float] = defaultdict(float)
    launcher = psutil.Process(launcher_pid)
    for process in (launcher, *launcher.children(recursive=True)):
        try:
            role = LAUNCHER if process == launcher else _role(process.cmdline())
            mib[role] += process.memory_info().rss / _BYTES
        except psutil.Error:  # it ended while we looked
            continue
    return Sample(at_s, dict(mib))


async def watch(
    launcher_pid: int, every_s: float, for_s: float, told: Callable[[float], None]
) -> list[Sample]:
    """A sample every so often; `told` hears how many seconds have passed."""
    began_s, samples = time.monotonic(), list[Sample]()
    while (at_s := time.monotonic() - began_s) < for_s:
        samples.append(await asyncio.to_thread(sample, launcher_pid, at_s))
        told(at_s)
        await asyncio.sleep(every_s)
    told(for_s)
    return samples


def _role(command: list[str]) -> str:
    """By the module that it runs."""
    module = command[command.index("-m") + 1] if "-m" in command[:-1] else ""
    return _ROLES.get(module, OTHERS)
