"""What a model service says when it does not load or unload: one sentence each."""

from collections.abc import Iterable

from chassis.clock import steady_ms
from chassis.errors import Fault, Reason
from hosting.hosted import Hosted


def no_model(service: str, key: str, there_are: Iterable[str]) -> Fault:
    """Nothing of that name is configured."""
    return Fault(
        Reason.MODEL_NOT_FOUND,
        f"The {service} service has no model '{key[:100]}'; "
        f"it has: {', '.join(there_are) or 'none'}.",
    )


def removed(key: str) -> Fault:
    """It is configured no more, and on its way out."""
    return Fault(
        Reason.MODEL_NOT_FOUND,
        f"Model '{key}' has been taken out of the configuration, and finishes what runs on it; "
        "ask for another.",
    )


def lease_required(what: str) -> Fault:
    """There is no lease to load into."""
    return Fault(
        Reason.LEASE_REQUIRED,
        f"A model is loaded into leased memory only: {what}, "
        "or ask the scheduler to load the model.",
    )


def lease_too_small(hosted: Hosted, granted_mib: int) -> Fault:
    """The lease does not hold the model."""
    return Fault(
        Reason.LEASE_REQUIRED,
        f"Model '{hosted.spec.key}' needs {hosted.resident_mib} MiB, but the lease for it is "
        f"of {granted_mib} MiB: if its file has just changed, ask again; else pass a larger lease.",
        retry_after_s=1.0,
    )


def model_failed(hosted: Hosted, cause: str, message: str) -> Fault:
    """It failed, now or lately."""
    cooling_ms = hosted.record.cooling_ms(steady_ms())
    return Fault(
        Reason.MODEL_FAILED,
        f"Model '{hosted.spec.key}' failed: {message}",
        retry_after_s=max(0.1, cooling_ms / 1000),
        metadata={"cause": cause},
    )


def model_leaving(key: str) -> Fault:
    """All its instances drain."""
    return Fault(Reason.MODEL_BUSY, f"Model '{key}' is leaving.", retry_after_s=1.0)


def model_busy(key: str, running: int) -> Fault:
    """It did not become idle in time."""
    return Fault(
        Reason.MODEL_BUSY,
        f"Model '{key}' is still running {running} request(s); wait, or unload it with force.",
        retry_after_s=1.0,
    )


def unloaded_meanwhile(key: str) -> Fault:
    """Somebody unloaded what somebody else was loading."""
    return Fault(
        Reason.MODEL_BUSY,
        f"Model '{key}' was unloaded before it was ready; load it again.",
        retry_after_s=1.0,
    )


def trial_failed(key: str) -> Fault:
    """A load on trial failed; what was there before comes back."""
    return Fault(
        Reason.MODEL_BUSY,
        f"The new file of model '{key}' cannot be loaded; the former one comes back.",
        retry_after_s=1.0,
    )


def stopping(service: str) -> Fault:
    """The whole service is on its way out."""
    return Fault(
        Reason.SERVICE_UNAVAILABLE,
        f"The {service} service is stopping; try again shortly.",
        retry_after_s=1.0,
    )
