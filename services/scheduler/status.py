"""The scheduler at one moment, as its status message."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass

from chassis.clock import steady_ms
from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from services.scheduler.core.line import Waiter
from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.state import Model
from services.scheduler.core.values import Tier
from services.scheduler.shell import SchedulerShell

_MOST_RUNNING = 1_000
_MOST_KEYS = 100
_MOST_LINES = 20
_WATCH_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Shown:
    """A status as those who watch are shown it."""

    status: pb.Status
    changed: asyncio.Event
    """Set when it is true no more."""
    good_until_s: float
    """By the monotonic clock: nobody is shown another before."""


class Watched:
    """One status for all who watch.

    A new one is made at most ten times a second, and in no more than a twentieth of the scheduler's
    time, however many they are.
    """

    def __init__(self, shell: SchedulerShell) -> None:
        self._shell = shell
        self._shown: Shown | None = None

    def latest(self) -> Shown:
        """The one that was shown last, or a new one when its time has come."""
        began_s = time.monotonic()
        if self._shown is None or began_s >= self._shown.good_until_s:
            changed = self._shell.changed
            status = status_message(self._shell, steady_ms())
            took_s = time.monotonic() - began_s
            good_until_s = began_s + took_s + max(_WATCH_PAUSE_S, 20 * took_s)
            self._shown = Shown(status, changed, good_until_s)
        return self._shown


def status_message(shell: SchedulerShell, now_ms: int) -> pb.Status:
    """Permits, queues, lanes, models and keys, and what runs (at most 1,000 entries)."""
    core = shell.core
    waiting = core.room.in_order()
    return pb.Status(
        permits_total=core.books.settings.permits,
        permits_in_use=core.in_use,
        tiers=_tiers(core, waiting, now_ms),
        lanes=_lanes(core, waiting),
        running=_running(core, now_ms),
        reconciled=core.catalogued,
        unreachable_workers=sorted(shell.lost),
        models=_models(shell, waiting, now_ms),
        keys=_keys(core),
        holds=[
            pb.Status.HoldStatus(lane=lane, holder=holder, expires_unix_ms=until_ms)
            for lane, holder, until_ms in core.books.holds.all()
        ],
        configurations=[
            pb.Status.ConfigurationStatus(service=name, configuration=told)
            for name, told in sorted(shell.told.configurations.items())
            if told.problem or told.restart_keys
        ],
    )


def _running(core: SchedulerCore, now_ms: int) -> list[pb.Status.Running]:
    return [
        pb.Status.Running(
            permit_id=name,
            request_id=permit.request.request_id,
            model_key=permit.model,
            lane=permit.lane,
            tier=_wire(permit.rank),
            cost=permit.cost,
            running_ms=max(0, now_ms - permit.granted_ms),
        )
        for name, permit in list(core.permits.items())[:_MOST_RUNNING]
    ]


def _tiers(core: SchedulerCore, waiting: list[Waiter], now_ms: int) -> list[pb.Status.TierStatus]:
    oldest: dict[int, int] = {}
    for waiter in waiting:
        first_ms = waiter.request.arrived_ms
        oldest[waiter.rank] = min(oldest.get(waiter.rank, now_ms), first_ms)
    return [
        pb.Status.TierStatus(
            tier=_wire(tier),
            waiting=core.room.counts[tier],
            queue_limit=core.books.settings.queue_limits.get(tier, core.books.settings.queue_limit),
            oldest_wait_ms=max(0, now_ms - oldest.get(tier, now_ms)),
        )
        for tier in reversed(Tier)
    ]


def _lanes(core: SchedulerCore, waiting: list[Waiter]) -> list[pb.Status.LaneStatus]:
    running = Counter(permit.lane for permit in core.permits.values())
    running.update(waiter.lane.name for waiter in core.room.aside.values())
    queued = Counter(waiter.lane.name for waiter in waiting)
    known = {model.facts.lane for model in core.models.values()}
    return [
        pb.Status.LaneStatus(
            lane=name,
            cost=core.books.settings.lane_of(name).cost,
            running=running.get(name, 0),
            waiting=queued[name],
            held=core.books.holds.closed(name),
        )
        for name in sorted(known | running.keys() | queued.keys())
    ]


def _models(
    shell: SchedulerShell, waiting: list[Waiter], now_ms: int
) -> list[pb.Status.ModelStatus]:
    core = shell.core
    ranks = {
        key: (rank, cost)
        for rank, (key, cost) in enumerate(core.choosing.order_of_eviction(now_ms), 1)
    }
    lines: dict[str, Counter[tuple[int, str]]] = {}
    for waiter in waiting:
        tier = min(waiter.rank, Tier.PAID)
        lines.setdefault(waiter.model, Counter())[tier, waiter.client.key] += 1
    return [
        _model(core, core.models[key], lines.get(key, Counter()), ranks.get(key, (0, 0.0)), service)
        for key, service in shell.told.hosts().items()
        if key in core.models
    ]


def _model(
    core: SchedulerCore,
    model: Model,
    lines: "Counter[tuple[int, str]]",
    eviction: tuple[int, float],
    service: str,
) -> pb.Status.ModelStatus:
    facts = model.facts
    pinned = core.books.rule(model.key).pinned or bool(model.pinned_by)
    return pb.Status.ModelStatus(
        model_key=facts.key,
        state=models_pb2.ModelState.ValueType(facts.state.value),
        resident_mib=facts.resident_mib,
        peak_transient_mib=facts.peak_mib,
        running=model.running,
        waiting=[
            pb.Status.Line(tier=_wire(tier), fairness_key=key, waiting=count)
            for (tier, key), count in lines.most_common(_MOST_LINES)
        ],
        last_used_unix_ms=model.last_used_ms if model.used else 0,
        instances=len(model.instances),
        max_instances=facts.max_instances,
        pinned=pinned,
        leaving_for=model.wanted_by,
        eviction_rank=eviction[0],
        eviction_cost=eviction[1],
        reload_ms=model.expected_load_ms,
        service=service,
        family=facts.family,
        failure=facts.failure,
        retry_at_unix_ms=facts.retry_at_ms,
        removed=facts.removed,
    )


def _keys(core: SchedulerCore) -> list[pb.Status.KeyStatus]:
    busy = [client for client in core.books.clients if client.active and client.key]
    busy.sort(key=lambda client: (-client.running - client.waiting, client.key))
    return [
        pb.Status.KeyStatus(
            fairness_key=client.key,
            weight=client.weight,
            virtual_ms=round(client.virtual_ms),
            waiting=client.waiting,
            running=client.running,
        )
        for client in busy[:_MOST_KEYS]
    ]


def _wire(tier: int) -> common_pb2.Tier.ValueType:
    return common_pb2.Tier.ValueType(min(tier, Tier.PAID))
