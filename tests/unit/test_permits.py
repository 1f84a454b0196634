"""Each permit runs once, and a revoked one never again."""

import asyncio
from collections.abc import Awaitable

import pytest

from chassis.errors import Fault, Reason
from hosting import permits
from hosting.permits import PermitLedger

DEADLINE_S = 5.0


class World:
    def __init__(self) -> None:
        self.changes: list[tuple[str, bool]] = []
        self.ledger = PermitLedger(self._changed)
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.cleaned = asyncio.Event()

    def _changed(self, permit_id: str, started: bool, transient_lease_id: str) -> None:
        assert transient_lease_id == self.ledger.running.get(permit_id, transient_lease_id)
        self.changes.append((permit_id, started))

    async def work(self, permit_id: str, *, slow_cleanup: bool = False) -> str:
        async with self.ledger.use(permit_id):
            self.begun.set()
            try:
                await self.go.wait()
            finally:
                if slow_cleanup:
                    await self.cleaned.wait()
        return "done"

    async def started(self, permit_id: str, *, slow_cleanup: bool = False) -> asyncio.Task[str]:
        task = asyncio.create_task(self.work(permit_id, slow_cleanup=slow_cleanup))
        await asyncio.wait_for(self.begun.wait(), DEADLINE_S)
        return task


async def refused(call: Awaitable[object]) -> Fault:
    with pytest.raises(Fault) as caught:
        await asyncio.wait_for(call, DEADLINE_S)
    return caught.value


async def test_work_needs_a_permit() -> None:
    w = World()
    assert (await refused(w.work(""))).reason is Reason.PERMIT_REQUIRED
    assert w.changes == []


async def test_a_permit_runs_once_at_a_time_and_once_in_all() -> None:
    w = World()
    task = await w.started("p")
    assert set(w.ledger.running) == {"p"}
    assert (await refused(w.work("p"))).reason is Reason.PERMIT_IN_USE
    assert set(w.ledger.running) == {"p"}  # the refused one ended nothing
    w.go.set()
    assert await task == "done"
    assert not w.ledger.running
    assert (await refused(w.work("p"))).reason is Reason.PERMIT_REVOKED
    assert w.changes == [("p", True), ("p", False)]


async def test_permits_run_side_by_side() -> None:
    w = World()
    tasks = [asyncio.create_task(w.work(name)) for name in "abc"]
    await w.started("d")
    assert set(w.ledger.running) == set("abcd")
    await w.ledger.revoke("b", only_if_not_started=False)
    assert set(w.ledger.running) == set("acd")
    w.go.set()
    assert (await refused(tasks[1])).reason is Reason.PERMIT_REVOKED
    assert await tasks[0] == await tasks[2] == "done"


async def test_revoking_cancels_the_work_and_waits_for_its_end() -> None:
    w = World()
    task = await w.started("p", slow_cleanup=True)
    revokers = [
        asyncio.create_task(w.ledger.revoke("p", only_if_not_started=False)) for _ in range(2)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not any(revoker.done() for revoker in revokers)
    assert set(w.ledger.running) == {"p"}
    w.cleaned.set()
    assert await asyncio.gather(*revokers) == [False, False]
    fault = await refused(task)
    assert (fault.reason, fault.retry_after_s) == (Reason.PERMIT_REVOKED, 1.0)
    assert task.cancelling() == 0  # the task may await again, to say so to its caller
    assert w.changes == [("p", True), ("p", False)]


async def test_work_that_runs_may_be_left_alone() -> None:
    w = World()
    task = await w.started("p")
    assert await w.ledger.revoke("p", only_if_not_started=True) is True
    w.go.set()
    assert await task == "done"
    assert await w.ledger.revoke("p", only_if_not_started=True) is False


@pytest.mark.parametrize("careful", [False, True])
async def test_a_permit_revoked_before_its_call_is_refused(careful: bool) -> None:
    w = World()
    assert await w.ledger.revoke("p", only_if_not_started=careful) is False
    assert (await refused(w.work("p"))).reason is Reason.PERMIT_REVOKED
    assert w.changes == []


async def test_a_client_that_leaves_is_no_revocation() -> None:
    w = World()
    task = await w.started("p")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert w.changes == [("p", True), ("p", False)]
    assert (await refused(w.work("p"))).reason is Reason.PERMIT_REVOKED


async def test_an_error_of_the_work_ends_the_permit_and_passes() -> None:
    w = World()
    with pytest.raises(ZeroDivisionError):
        async with w.ledger.use("p"):
            raise ZeroDivisionError
    assert w.changes == [("p", True), ("p", False)]


async def test_a_drain_waits_for_what_runs_and_lets_nobody_in() -> None:
    w = World()
    task = await w.started("p")
    drain = asyncio.create_task(w.ledger.drain(DEADLINE_S, force=False))
    await asyncio.sleep(0)
    fault = await refused(w.work("q"))
    assert (fault.reason, fault.retry_after_s) == (Reason.MODEL_EVICTED, 1.0)
    assert not drain.done()
    w.go.set()
    assert await drain == 0
    assert await task == "done"
    assert await w.work("q") == "done"  # it was refused, not spent


async def test_a_drain_that_is_too_late_changes_nothing() -> None:
    w = World()
    task = await w.started("p")
    assert await w.ledger.drain(0.01, force=False) == 1
    w.go.set()
    assert await w.work("q") == "done"
    assert await task == "done"


async def test_drains_overlap_and_may_be_cancelled() -> None:
    w = World()
    task = await w.started("p")
    drains = [asyncio.create_task(w.ledger.drain(DEADLINE_S, force=False)) for _ in range(2)]
    await asyncio.sleep(0)
    drains[0].cancel()
    await asyncio.wait([drains[0]])
    assert (await refused(w.work("q"))).reason is Reason.MODEL_EVICTED
    drains[1].cancel()
    await asyncio.wait([drains[1]])
    w.go.set()
    assert await w.work("q") == await task == "done"


async def test_force_ends_what_runs_and_says_why() -> None:
    w = World()
    task = await w.started("p", slow_cleanup=True)
    drain = asyncio.create_task(w.ledger.drain(0.01, force=True))
    revoked = asyncio.create_task(w.ledger.revoke("p", only_if_not_started=True))
    assert await revoked is True
    await asyncio.wait([drain], timeout=0.05)
    assert not drain.done()  # not before its place is free
    w.cleaned.set()
    assert await drain == 0
    assert (await refused(task)).reason is Reason.MODEL_EVICTED


async def test_the_first_reason_stands() -> None:
    w = World()
    task = await w.started("p", slow_cleanup=True)
    revoking = asyncio.create_task(w.ledger.revoke("p", only_if_not_started=False))
    await asyncio.sleep(0)
    drain = asyncio.create_task(w.ledger.drain(0, force=True))
    await asyncio.sleep(0)
    w.cleaned.set()
    await asyncio.gather(revoking, drain)
    assert (await refused(task)).reason is Reason.PERMIT_REVOKED


async def test_a_closed_ledger_lets_nobody_in_and_waits_for_nobody_too_long() -> None:
    w = World()
    task = await w.started("p", slow_cleanup=True)
    await w.ledger.close(0.01)
    assert (await refused(w.work("q"))).reason is Reason.MODEL_EVICTED
    w.cleaned.set()
    assert (await refused(task)).reason is Reason.MODEL_EVICTED


async def test_the_transient_lease_is_known_while_it_runs() -> None:
    w = World()
    async with w.ledger.use("p", "lease-7"):
        assert w.ledger.running == {"p": "lease-7"}
    assert w.ledger.running == {}


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permits, "_REMEMBERED", 100)
    w = World()
    w.go.set()
    for number in range(1000):
        await w.ledger.revoke(f"r{number}", only_if_not_started=False)
        await w.work(f"u{number}")
    assert len(w.ledger._spent) == 100
    assert (await refused(w.work("u999"))).reason is Reason.PERMIT_REVOKED
    assert (await refused(w.work("r950"))).reason is Reason.PERMIT_REVOKED
