"""What the scheduler's process counts of admissions, over the wire."""

from pathlib import Path
from typing import TYPE_CHECKING

from cohabit.common.v1 import common_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from tests.contract.test_scheduler import asking, granted, next_of, scheduler, sockets, status_in
from tests.hosting_world import refusal
from tests.metrics_kit import Values, values_of

if TYPE_CHECKING:
    from tests.contract.test_scheduler import Scheduler

__all__ = ["scheduler", "sockets"]


async def told(sockets: Path) -> Values:
    return await values_of(f"unix:{sockets}/scheduler.sock")


async def test_who_is_granted_refused_or_leaves(scheduler: "Scheduler", sockets: Path) -> None:
    before = await told(sockets)

    def more(values: Values, name: str) -> float:
        return values.get(name, 0) - before.get(name, 0)

    def admissions(outcome: str, tier: str = "free") -> str:
        return f'cohabit_admissions_total{{outcome="{outcome}",tier="{tier}"}}'

    await refusal(scheduler.Admit(pb.AdmitRequest(model="nobody")).read())
    async with asking(scheduler, "solo", tier=common_pb2.TIER_PAID) as runs:
        await granted(runs)
        values = await told(sockets)
        assert (values["cohabit_permits"], values["cohabit_permits_in_use"]) == (2, 2)
        assert values['cohabit_lane_running_requests{lane="alone"}'] == 1
        async with asking(scheduler, "solo", tier=common_pb2.TIER_SUB) as waits:
            await next_of(waits)
            values = await told(sockets)
            assert values['cohabit_queue_requests{lane="alone",tier="sub"}'] == 1
            assert values['cohabit_queue_requests{lane="alone",tier="paid"}'] == 0
            assert values['cohabit_queue_oldest_wait_seconds{tier="sub"}'] >= 0
        await status_in(scheduler, lambda status: not any(t.waiting for t in status.tiers))
    await status_in(scheduler, lambda status: not status.permits_in_use)
    await scheduler.UnloadModel(pb.UnloadModelRequest(model="solo"))
    values = await told(sockets)
    assert more(values, admissions("granted", "paid")) == 1
    assert more(values, admissions("left", "sub")) == 1
    assert more(values, admissions("model_not_found")) == 1
    waited = 'cohabit_queue_wait_seconds_count{lane="alone",tier="paid"}'
    assert more(values, waited) == 1
    assert more(values, 'cohabit_departures_total{cause="by_hand"}') == 1
    assert values["cohabit_scheduler_ready"] == 1
