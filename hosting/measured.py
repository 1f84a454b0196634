"""What the instances of a model were seen to hold while they served: beside what is declared.

A figure of the operating system is not what a model needs: the resident set of a process counts
its libraries, and mapped weights that the kernel may drop. So what is declared is leased for,
unless the service says that its engines' own figures are to be trusted (`ModelSpec.measure`).
"""

from dataclasses import dataclass

from chassis import log
from hosting.usage import MUCH_MIB, Usage
from hosting.values import ModelSpec


@dataclass(slots=True)
class Measured:
    """The most that was seen; 0: nothing yet."""

    resident_mib: int = 0
    peak_transient_mib: int = 0
    _told: bool = False

    def see(self, spec: ModelSpec, usage: Usage, running: int) -> None:
        """Take in what a READY instance holds that runs `running` requests."""
        self.resident_mib = max(self.resident_mib, usage.resident_mib)
        if running == 1:  # of several, nobody knows whose it is
            self.peak_transient_mib = max(self.peak_transient_mib, usage.transient_mib)
        if self._told or spec.measure or self.resident_mib <= spec.resident_mib + MUCH_MIB:
            return
        self._told = True
        log.get().warning(
            "model holds more than is declared",
            model=spec.key,
            held_mib=self.resident_mib,
            declared_mib=spec.resident_mib,
        )

    def clear(self) -> None:
        """The model is another one now."""
        self.resident_mib = self.peak_transient_mib = 0
        self._told = False
