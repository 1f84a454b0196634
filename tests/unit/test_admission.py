"""What admission does to its two calls, in which order: stubs that only remember."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import pytest

from chassis import place, tracing
from chassis.admission import Admission
from chassis.channel import TAKEN_IN
from chassis.errors import Fault, Reason
from chassis.place import Ask, Loading, Place, Queued, Waits
from chassis.status import DETAILS_KEY, details_of
from chassis.tracing import Attributes, Span
from cohabit.common.v1 import common_pb2
from cohabit.llm.v1 import llm_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb

ASK = Ask("m", common_pb2.TIER_FREE)
WAITS = Waits(answer_s=1.0, resume_s=1.0, request_s=10.0)
QUEUED = pb.AdmitResponse(queued=pb.AdmitResponse.Queued(position=2, resume_token="t1"))
QUEUED_AGAIN = pb.AdmitResponse(queued=pb.AdmitResponse.Queued(position=1, resume_token="t2"))
LOADING = pb.AdmitResponse(loading=pb.AdmitResponse.Loading(model_key="m", progress=0.5))
GRANTED = pb.AdmitResponse(granted=pb.AdmitResponse.Granted(permit_id="p", address="unix:e"))
OVERFLOW = pb.AdmitResponse(overflow=pb.AdmitResponse.Overflow(endpoint="https://elsewhere"))
GRANTED_WITH_TOKEN = pb.AdmitResponse(
    granted=pb.AdmitResponse.Granted(permit_id="p", address="unix:e", resume_token="t9")
)
TEXT = llm_pb2.GenerateResponse(text="Hi")


def gone(code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "Socket closed")


def refused(fault: Fault, *, taken_in: bool = False) -> grpc.aio.AioRpcError:
    """The status that a service of the house makes of `fault`."""
    initial = grpc.aio.Metadata((TAKEN_IN, "1")) if taken_in else grpc.aio.Metadata()
    trailing = grpc.aio.Metadata((DETAILS_KEY, details_of(fault)))
    return grpc.aio.AioRpcError(fault.row.code, initial, trailing, fault.message)


def revoked(*, taken_in: bool = False) -> grpc.aio.AioRpcError:
    fault = Fault(Reason.PERMIT_REVOKED, "It has ended; ask again.", retry_after_s=1.0)
    return refused(fault, taken_in=taken_in)


class Call:
    """A stream that yields what it was given, raises the errors in it, then hangs."""

    def __init__(self, name: str, log: list[str], script: list[Any]) -> None:
        self._name, self._log, self._script = name, log, script
        self.hangs = asyncio.Event()

    async def read(self) -> Any:
        if not self._script:
            self.hangs.set()
            await asyncio.Event().wait()
        item = self._script.pop(0)
        if isinstance(item, Exception):
            raise item
        return item

    def cancel(self) -> None:
        self._log.append(f"cancel {self._name}")


class Stubs:
    """Both services, and the connections to engines."""

    def __init__(self, admits: list[list[Any]], generate: list[Any]) -> None:
        self.log: list[str] = []
        self.asked: list[pb.AdmitRequest] = []
        self._admits = admits
        self.engine_call = Call("engine", self.log, generate)

    def Admit(self, request: pb.AdmitRequest, **_: Any) -> Call:
        self.asked.append(request)
        return Call("admit", self.log, self._admits.pop(0))

    @property
    def call(self) -> Any:
        return self.engine_call

    @asynccontextmanager
    async def to(self, _address: str) -> AsyncIterator["Stubs"]:
        yield self

    async def run(self, until: type | None = None, waits: Waits = WAITS) -> list[Any]:
        """All events; with `until`, leave at the first event of that type."""
        engines: Any = self
        scheduler: Any = self
        admission: Admission[Stubs] = Admission(scheduler, engines, waits)
        seen: list[Any] = []
        async with aclosing(admission.run(ASK, lambda engine, _: engine.call)) as events:
            async for event in events:
                seen.append(event)
                if until is not None and isinstance(event, until):
                    break
        return seen


async def test_the_whole_way() -> None:
    stubs = Stubs([[QUEUED, LOADING, GRANTED]], [TEXT, grpc.aio.EOF])
    assert await stubs.run() == [Queued(2), Loading("m", 0.5), TEXT]
    assert stubs.log == ["cancel engine", "cancel admit"]


class SingleCall:
    """A call with one answer, which is the first item of its script; hangs without one."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __await__(self) -> Any:
        return self._call.read().__await__()

    def cancel(self) -> None:
        self._call.cancel()


async def answer_of(stubs: Stubs) -> Any:
    stubs_: Any = stubs
    admission: Admission[Stubs] = Admission(stubs_, stubs_, WAITS)
    start: Any = lambda engine, _: SingleCall(engine.call)  # noqa: E731
    return await admission.answer(ASK, start)


async def test_a_call_with_one_answer_goes_the_same_way() -> None:
    stubs = Stubs([[QUEUED, LOADING, GRANTED]], [TEXT])
    assert await answer_of(stubs) == TEXT
    assert stubs.log == ["cancel engine", "cancel admit"]
    stubs = Stubs([[GRANTED], [GRANTED]], [gone(), TEXT])
    assert await answer_of(stubs) == TEXT
    assert len(stubs.asked) == 2
    stubs = Stubs([[GRANTED]], [refused(TOO_LONG)])
    with pytest.raises(Fault) as caught:
        await answer_of(stubs)
    assert caught.value.reason is Reason.RUN_TOO_LONG


async def test_who_leaves_before_the_one_answer_lets_go_of_the_engine_first() -> None:
    stubs = Stubs([[GRANTED]], [])
    task = asyncio.create_task(answer_of(stubs))
    await asyncio.wait_for(stubs.engine_call.hangs.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stubs.log == ["cancel engine", "cancel admit"]


async def test_an_engine_that_ends_without_an_answer_has_failed() -> None:
    stubs = Stubs([[GRANTED]], [grpc.aio.EOF])
    stubs_: Any = stubs
    admission: Admission[Stubs] = Admission(stubs_, stubs_, WAITS)
    with pytest.raises(Fault) as caught:
        await admission.answer(ASK, lambda engine, _: engine.call)
    assert caught.value.reason is Reason.ENGINE_CRASHED


async def test_leaving_in_the_middle_lets_go_of_the_engine_first() -> None:
    stubs = Stubs([[GRANTED]], [TEXT])
    await stubs.run(until=llm_pb2.GenerateResponse)
    assert stubs.log == ["cancel engine", "cancel admit"]


@pytest.mark.parametrize("generate", [[], [TEXT]])
async def test_a_cancel_lets_go_of_the_engine_first(generate: list[Any]) -> None:
    stubs = Stubs([[GRANTED]], generate)
    task = asyncio.create_task(stubs.run())
    await asyncio.wait_for(stubs.engine_call.hangs.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stubs.log == ["cancel engine", "cancel admit"]


async def test_the_trace_is_told_of_turns_and_not_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    class Heard(Span):
        __slots__ = ("events",)

        def __init__(self) -> None:
            self.events: list[str] = []

        def __bool__(self) -> bool:
            return True

        def event(self, name: str, _attributes: Attributes | None = None) -> None:
            self.events.append(name)

    heard = Heard()
    monkeypatch.setattr(tracing, "begin", lambda _name: heard)
    script = [QUEUED, QUEUED_AGAIN, LOADING, LOADING, QUEUED, GRANTED]
    queue: Any = Stubs([script], [])
    async for _ in Place(queue, ASK, WAITS).until_granted():
        pass
    assert heard.events == ["queued", "loading", "queued", "granted"]


async def test_leaving_the_queue() -> None:
    stubs = Stubs([[QUEUED]], [])
    await stubs.run(until=Queued)
    assert stubs.log == ["cancel admit"]


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (gone(), Reason.ENGINE_CRASHED),
        (gone(grpc.StatusCode.CANCELLED), Reason.ENGINE_CRASHED),
        (gone(grpc.StatusCode.DEADLINE_EXCEEDED), Reason.DEADLINE_EXCEEDED),
    ],
)
async def test_engine_failures(failure: Exception, reason: Reason) -> None:
    stubs = Stubs([[GRANTED]], [TEXT, failure])
    with pytest.raises(Fault) as caught:
        await stubs.run()
    assert caught.value.reason is reason
    assert stubs.log == ["cancel engine", "cancel admit"]


async def test_an_engine_that_had_gone_costs_another_turn() -> None:
    stubs = Stubs([[GRANTED], [QUEUED, GRANTED]], [gone(), TEXT, grpc.aio.EOF])
    assert await stubs.run() == [Queued(2), TEXT]
    assert len(stubs.asked) == 2


async def test_another_turn_is_taken_at_the_place_it_had() -> None:
    stubs = Stubs([[GRANTED_WITH_TOKEN], [GRANTED]], [revoked(), TEXT, grpc.aio.EOF])
    assert await stubs.run() == [TEXT]
    assert [ask.resume_token for ask in stubs.asked] == ["", "t9"]
    assert stubs.log == ["cancel engine", "cancel admit", "cancel engine", "cancel admit"]


TOO_LONG = Fault(Reason.RUN_TOO_LONG, "It ran too long and was ended.", retry_after_s=1.0)


@pytest.mark.parametrize(
    "generate", [[TEXT, revoked()], [revoked(taken_in=True)]], ids=["said something", "taken in"]
)
@pytest.mark.parametrize(
    ("admit", "reason"),
    [
        ([GRANTED, refused(TOO_LONG)], Reason.RUN_TOO_LONG),
        ([GRANTED, gone()], Reason.PERMIT_REVOKED),
        ([GRANTED, grpc.aio.EOF], Reason.PERMIT_REVOKED),
        ([GRANTED], Reason.PERMIT_REVOKED),
    ],
    ids=["the scheduler says why", "it is gone", "it ends", "it says nothing"],
)
async def test_work_that_was_ended_says_why_and_asks_for_no_repetition(
    admit: list[Any], generate: list[Any], reason: Reason, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_WHY_S", 0.05)
    stubs = Stubs([list(admit)], list(generate))
    with pytest.raises(Fault) as caught:
        await stubs.run()
    assert caught.value.reason is reason
    assert caught.value.retry_after_s is None
    assert len(stubs.asked) == 1


async def test_a_scheduler_that_falls_silent_is_taken_as_gone() -> None:
    stubs = Stubs([[QUEUED], [GRANTED]], [TEXT, grpc.aio.EOF])
    waits = Waits(answer_s=1.0, resume_s=1.0, request_s=10.0, silence_s=0.05)
    assert await asyncio.wait_for(stubs.run(waits=waits), 5) == [Queued(2), TEXT]
    assert [ask.resume_token for ask in stubs.asked] == ["", "t1"]


async def test_a_request_that_was_taken_in_is_never_sent_again() -> None:
    taken_in = grpc.aio.Metadata((TAKEN_IN, "1"))
    crash = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, taken_in, grpc.aio.Metadata(), "")
    stubs = Stubs([[GRANTED], [GRANTED]], [crash, TEXT])
    with pytest.raises(Fault) as caught:
        await stubs.run()
    assert caught.value.reason is Reason.ENGINE_CRASHED
    assert len(stubs.asked) == 1


async def test_engines_that_are_always_gone_end_in_an_error() -> None:
    stubs = Stubs([[GRANTED] for _ in range(9)], [gone() for _ in range(9)])
    with pytest.raises(Fault) as caught:
        await stubs.run()
    assert caught.value.reason is Reason.ENGINE_CRASHED
    assert 2 < len(stubs.asked) < 9


async def test_a_new_call_does_not_wait_for_the_scheduler() -> None:
    stubs = Stubs([[gone()]], [])
    with pytest.raises(Fault) as caught:
        await stubs.run()
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    assert caught.value.retry_after_s == 1.0
    assert len(stubs.asked) == 1


async def test_a_queued_call_resumes_with_its_latest_token() -> None:
    stubs = Stubs(
        [[QUEUED, gone()], [gone()], [QUEUED_AGAIN, grpc.aio.EOF], [GRANTED]],
        [TEXT, grpc.aio.EOF],
    )
    assert await stubs.run() == [Queued(2), Queued(1), TEXT]
    assert [ask.resume_token for ask in stubs.asked] == ["", "t1", "t1", "t2"]


async def test_a_queued_call_gives_up_in_time() -> None:
    stubs = Stubs([[QUEUED, gone()], *([gone()] for _ in range(20))], [])
    began = asyncio.get_running_loop().time()
    with pytest.raises(Fault) as caught:
        await stubs.run(waits=Waits(answer_s=1.0, resume_s=0.2, request_s=10.0))
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    assert asyncio.get_running_loop().time() - began <= 0.5
    assert len(stubs.asked) > 1


async def test_a_resumed_call_that_gets_no_answer_gives_up_in_time() -> None:
    stubs = Stubs([[QUEUED, gone()], []], [])
    with pytest.raises(Fault) as caught:
        await stubs.run(waits=Waits(answer_s=9.0, resume_s=0.2, request_s=10.0))
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE


async def test_overflow_is_not_built() -> None:
    stubs = Stubs([[OVERFLOW]], [])
    with pytest.raises(Fault) as caught:
        await stubs.run()
    assert caught.value.reason is Reason.NOT_IMPLEMENTED
    assert stubs.log == ["cancel admit"]
