"""Prometheus metrics of the scheduler: who waits, who runs, who was let in, what had to leave.

Lanes and tiers are labels, fairness keys and models are not: the models' own services tell of
those.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable
from functools import partial

from prometheus_client import Counter, Gauge, Histogram

from chassis.clock import steady_ms
from chassis.metrics import SECONDS, on_scrape
from services.scheduler.core.line import Waiter
from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.values import Cause, Departure, Grant, Refuse, Request, Tier

ADMISSIONS = Counter(
    "cohabit_admissions_total",
    "Requests that wait no more: granted, left, or the reason of their refusal.",
    ["tier", "outcome"],
)
WAIT_SECONDS = Histogram(
    "cohabit_queue_wait_seconds",
    "Time from a request's first arrival to its grant, the load of its model included.",
    ["tier", "lane"],
    buckets=SECONDS,
)
REVOKED = Counter(
    "cohabit_permits_revoked_total", "Permits that were taken back, by the reason.", ["reason"]
)
DEPARTURES = Counter(
    "cohabit_departures_total",
    "Models told to leave: memory_wanted (evicted), unused, by_hand, or load_given_up.",
    ["cause"],
)
WAITING = Gauge("cohabit_queue_requests", "Requests that wait.", ["tier", "lane"])
OLDEST = Gauge(
    "cohabit_queue_oldest_wait_seconds", "How long the oldest of them has waited.", ["tier"]
)
LIMIT = Gauge("cohabit_queue_limit_requests", "As many may wait.", ["tier"])
RUNNING = Gauge("cohabit_lane_running_requests", "Permits that are out.", ["lane"])
PERMITS = Gauge("cohabit_permits", "Permits there are.")
IN_USE = Gauge("cohabit_permits_in_use", "Permits in use; a request may take several.")
HOLDS = Gauge("cohabit_lane_holds", "Lanes that somebody keeps closed.")
READY = Gauge("cohabit_scheduler_ready", "1 when every model service has reported.")

_OF_LANES = (WAITING, RUNNING)

# From 0 on: of a series that is first seen at 1, nobody can tell that it has grown.
for _cause in Departure:
    DEPARTURES.labels(_cause.value)
for _tier_of in Tier:
    for _outcome in ("granted", "left", *(cause.value for cause in Cause)):
        ADMISSIONS.labels(_tier_of.name.lower(), _outcome)


def granted(core: SchedulerCore, grant: Grant) -> None:
    """Count a grant; one without a permit only had a model loaded."""
    permit = core.permits.get(grant.permit_id)
    if permit is None:
        return
    tier = _tier(permit.rank)
    ADMISSIONS.labels(tier, "granted").inc()
    WAIT_SECONDS.labels(tier, permit.lane).observe(max(0, grant.waited_ms) / 1000)


def refused(request: Request, refusal: Refuse, *, was_granted: bool) -> None:
    """Count a refusal, or the end of a permit."""
    reason = refusal.cause.value
    if was_granted:
        REVOKED.labels(reason).inc()
    else:
        ADMISSIONS.labels(_tier(request.tier), reason).inc()


def left(request: Request) -> None:
    """Count one who went before an answer."""
    if not request.load_only:
        ADMISSIONS.labels(_tier(request.tier), "left").inc()


def departed(cause: Departure) -> None:
    """Count a model that is told to leave."""
    DEPARTURES.labels(cause.value).inc()


def follow(core: SchedulerCore) -> Callable[[], None]:
    """Show queues and permits whenever somebody looks; call what comes back to end it."""
    return on_scrape(partial(_publish, core))


async def _publish(core: SchedulerCore) -> None:
    waiting = core.room.in_order()
    running = Tally(permit.lane for permit in core.permits.values())
    lanes = {model.facts.lane for model in core.models.values()} | running.keys()
    _show_lanes(lanes, waiting, running)
    _show_tiers(core, waiting)
    PERMITS.set(core.settings.permits)
    IN_USE.set(core.in_use)
    HOLDS.set(len(list(core.books.holds.all())))
    READY.set(core.catalogued)


def _show_lanes(lanes: set[str], waiting: Iterable[Waiter], running: "Tally[str]") -> None:
    for gauge in _OF_LANES:
        gauge.clear()  # a lane that no model has any more is shown no more
    for lane in lanes:
        RUNNING.labels(lane).set(running[lane])
        for tier in Tier:
            WAITING.labels(_tier(tier), lane).set(0)
    for waiter in waiting:
        WAITING.labels(_tier(waiter.rank), waiter.lane.name).inc()


def _show_tiers(core: SchedulerCore, waiting: Iterable[Waiter]) -> None:
    now_ms, settings = steady_ms(), core.settings
    arrived: dict[str, int] = {}
    for waiter in waiting:
        name = _tier(waiter.rank)
        arrived[name] = min(arrived.get(name, now_ms), waiter.request.arrived_ms)
    for tier in Tier:
        name = _tier(tier)
        OLDEST.labels(name).set(max(0, now_ms - arrived.get(name, now_ms)) / 1000)
        LIMIT.labels(name).set(settings.queue_limits.get(tier, settings.queue_limit))


def _tier(rank: int) -> str:
    return Tier(min(rank, Tier.PAID)).name.lower()
