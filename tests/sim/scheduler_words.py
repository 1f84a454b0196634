"""The decisions of the scheduler's core in words, one line each."""

from services.scheduler.core.values import (
    AskEngine,
    AskLease,
    AskTransient,
    CancelLoad,
    Effect,
    Grant,
    HoldChanged,
    Loading,
    Queued,
    Refuse,
    ReturnLease,
    StartLoad,
    StartUnload,
)
from tests.sim.transcript import shown


def describe(effect: Effect) -> str:
    """One decision."""
    match effect:
        case Queued(name, position):
            return f"queued {name} at {position}"
        case Loading(name, model, progress):
            return f"tell {name}: {model} is {progress:.0%} loaded"
        case Grant():
            return _granted(effect)
        case Refuse(name, cause, detail, after):
            again = "" if after is None else f", retry in {shown(after)}"
            said = f" ({detail})" if detail else ""
            return f"refuse {name}: {cause.value}{said}{again}"
        case AskEngine(name, address, only):
            return f"ask {address} to end {name}" + (" unless it runs" if only else "")
        case HoldChanged(lane, holder, running, expires):
            return f"tell {holder}: {lane} " + (
                f"is held until {shown(expires)}, {running} running" if expires else "is open"
            )
        case _:
            return _of_memory(effect)


def _of_memory(
    effect: AskLease | AskTransient | ReturnLease | StartLoad | CancelLoad | StartUnload,
) -> str:
    match effect:
        case AskLease(model, mib, tier, leave):
            beside = f", {leave} MiB beside" if leave else ""
            return f"ask lease for {model} ({mib} MiB{beside}, {tier.name})"
        case AskTransient(name, _, preferred, minimum, tier, leave):
            least = f", at least {minimum}" if minimum != preferred else ""
            beside = f", {leave} MiB beside" if leave else ""
            return f"ask peak for {name} ({preferred} MiB{least}{beside}, {tier.name})"
        case StartLoad(model, lease):
            return f"load {model} into {lease}"
        case ReturnLease(lease):
            return f"return {lease}"
        case CancelLoad(model, why):
            return f"give up loading {model}: {why}"
        case StartUnload(model, drain, force, why):
            end = f", ending what runs after {shown(drain)}" if force else ""
            return f"unload {model}{end}: {why}"


def _granted(grant: Grant) -> str:
    where = "" if grant.instance_id in ("", f"{grant.model}-1") else f" ({grant.instance_id})"
    lease = f" with {grant.lease_id} ({grant.lease_mib} MiB)" if grant.lease_id else ""
    after = f" after {shown(grant.waited_ms)}" if grant.waited_ms else ""
    return f"grant {grant.permit_id} on {grant.model}{where}{lease}{after}"
