"""The scheduler at one moment, as its status message."""

from collections import Counter

from cohabit.common.v1 import common_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.values import Request, Tier
from services.scheduler.shell import SchedulerShell

_MOST_RUNNING = 1_000


def status_message(shell: SchedulerShell, now_ms: int) -> pb.Status:
    """Permits, queues, lanes and what runs (at most 1,000 entries)."""
    core = shell.core
    waiting = core.room.in_order()
    return pb.Status(
        permits_total=core.permits_total,
        permits_in_use=core.in_use,
        tiers=_tiers(core, waiting, now_ms),
        lanes=_lanes(core, waiting),
        running=[
            pb.Status.Running(
                permit_id=name,
                request_id=permit.request.request_id,
                model_key=permit.model,
                lane=permit.lane,
                tier=_wire(permit.request.tier),
                cost=permit.cost,
                running_ms=max(0, now_ms - permit.granted_ms),
            )
            for name, permit in list(core.permits.items())[:_MOST_RUNNING]
        ],
        reconciled=core.catalogued,
        unreachable_workers=sorted(shell.lost),
    )


def _tiers(core: SchedulerCore, waiting: list[Request], now_ms: int) -> list[pb.Status.TierStatus]:
    oldest: dict[Tier, int] = {}
    for request in waiting:
        oldest[request.tier] = min(oldest.get(request.tier, now_ms), request.arrived_ms)
    return [
        pb.Status.TierStatus(
            tier=_wire(tier),
            waiting=core.room.waiting(tier),
            queue_limit=core.queue_limit,
            oldest_wait_ms=max(0, now_ms - oldest.get(tier, now_ms)),
        )
        for tier in reversed(Tier)
    ]


def _lanes(core: SchedulerCore, waiting: list[Request]) -> list[pb.Status.LaneStatus]:
    running = Counter(permit.lane for permit in core.permits.values())
    queued = Counter(core.lane_for(request).name for request in waiting)
    known = {model.facts.lane for model in core.models.values()}
    return [
        pb.Status.LaneStatus(
            lane=name,
            cost=core.lane_of(name).cost,
            running=running[name],
            waiting=queued[name],
        )
        for name in sorted(known | running.keys() | queued.keys())
    ]


def _wire(tier: Tier) -> common_pb2.Tier.ValueType:
    return common_pb2.Tier.ValueType(tier.value)
