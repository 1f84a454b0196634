"""What a replay needs to know of a configuration: profiles, the card, the scheduler's settings.

Pure values; `configured` makes them of a cohabit.yaml.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cli.simulation.trace import Line
from services.broker.core import Budget, Floors
from services.scheduler.core.settings import Settings


@dataclass(frozen=True, slots=True)
class Profile:
    """What one model takes, and how fast it is."""

    key: str
    lane: str
    resident_mib: int
    load_ms: int
    family: str = ""
    peak_mib: int = 0
    """The most one request adds while it runs."""
    places: int = 1
    """Requests an instance runs side by side."""
    max_instances: int = 1
    context_tokens: int = 0
    unload_ms: int = 300
    work_ms: int = 1_000
    """One request, where the trace says neither tokens nor seconds."""
    tokens_per_s: float = 0.0
    """0: it makes no tokens."""
    prefill_tokens_per_s: float = 0.0

    def run_ms(self, line: Line) -> int:
        """How long a request runs, from what the trace says of it."""
        if line.work_s is not None:
            return max(1, round(line.work_s * 1000))
        if line.tokens is None or not self.tokens_per_s:
            return max(1, self.work_ms)
        prompt, answer = line.tokens
        prefill_s = prompt / self.prefill_tokens_per_s if self.prefill_tokens_per_s else 0.0
        return max(1, round((prefill_s + answer / self.tokens_per_s) * 1000))


@dataclass(frozen=True, slots=True)
class Tenant:
    """At this moment foreign tenants of the card hold this much of it."""

    at_ms: int
    mib: int


@dataclass(frozen=True, slots=True)
class CardSpec:
    """The device, and what of it is kept back."""

    total_mib: int
    floors: Floors
    reserve_mib: int = 0
    tenants: tuple[Tenant, ...] = ()
    max_leases: int = 4096

    def budget(self, free_mib: int) -> Budget:
        """What the broker sees while `free_mib` are free."""
        return Budget(self.total_mib, free_mib, self.reserve_mib, self.floors)


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything a replay is told but the trace."""

    profiles: Mapping[str, Profile]
    card: CardSpec
    settings: Settings

    def names(self) -> dict[str, Profile]:
        """What a trace may ask for: models, and families by their smallest member."""
        found = dict(self.profiles)
        for profile in sorted(self.profiles.values(), key=lambda p: p.resident_mib):
            if profile.family:
                found.setdefault(profile.family, profile)
        return found
