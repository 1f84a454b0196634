"""Which failures of a step pass by themselves, and when it is tried again."""

from dataclasses import dataclass

AWAY = frozenset(
    {
        "admission_timeout",
        "device_unreachable",
        "executor_queue_full",
        "fairness_key_queue_full",
        "grant_lapsed",
        "model_evicted",
        "no_headroom",
        "permit_revoked",
        "queue_full",
        "saturated",
        "service_unavailable",
        "storage_full",
    }
)
"""Somebody was away or had no room: not the request's doing, and bounded by age alone."""

BREAKDOWNS = frozenset(
    {
        "deadline_exceeded",
        "engine_crashed",
        "lease_not_found",
        "lease_required",
        "model_failed",
        "slow_reader",
    }
)
"""What a request may have brought about itself: bounded by attempts, too."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a step is tried again."""

    breakdowns: int
    """So many breakdowns of one step, and its job has failed."""
    age_ms: int
    """A job that began this long ago is given up at its next failure."""
    first_ms: int
    most_ms: int
    """The pause after the first failure in a row; it doubles, up to the other."""

    def pause_ms(self, misses: int, retry_after_ms: int) -> int:
        """How long to wait after `misses` failures in a row; at least what was asked for."""
        doubled = self.first_ms << min(max(0, misses - 1), 32)
        return max(min(self.most_ms, doubled), min(retry_after_ms, self.age_ms))

    def gives_up(self, reason: str, breakdowns: int, age_ms: int) -> bool:
        """The failure is final for the job; `breakdowns` counts this one."""
        if reason in BREAKDOWNS:
            return breakdowns >= self.breakdowns or age_ms >= self.age_ms
        return reason not in AWAY or age_ms >= self.age_ms
