"""What the edge does when clients leave, engines die, the scheduler is away, or nothing comes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import openai
import pytest
import structlog
from prometheus_client import REGISTRY

from chassis.channel import TAKEN_IN
from chassis.errors import Fault, Reason
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from tests.edge_kit import CHAT, DEADLINE_S, House, Script, finish, opened, raw_post, text


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path) as house:
        yield house


# Failures in the middle.


async def breaks(_request: Any, context: Any) -> AsyncIterator[Any]:
    yield text("Hel")
    raise Fault(Reason.ENGINE_CRASHED, "The engine died.")


async def ends_early(_request: Any, _context: Any) -> AsyncIterator[Any]:
    yield text("Hel")


@pytest.mark.parametrize("script", [breaks, ends_early])
async def test_a_failure_in_the_middle_is_never_a_clean_end(house: House, script: Script) -> None:
    house.peers.generate = script
    stream = await house.openai.chat.completions.create(**CHAT, stream=True)
    chunks = aiter(stream)
    said = [(await anext(chunks)).choices[0].delta.content for _ in range(2)]
    assert said == ["", "Hel"]
    with pytest.raises(openai.APIError) as caught:
        await anext(chunks)
    assert caught.value.code == "engine_crashed"
    lines = await house.lines({**CHAT, "stream": True})
    assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "engine_crashed"
    assert "data: [DONE]" not in lines
    with pytest.raises(openai.InternalServerError):
        await house.openai.chat.completions.create(**CHAT)


def requests_counted(outcome: str) -> float:
    labels = {"route": "/v1/chat/completions", "status": "200", "outcome": outcome}
    return REGISTRY.get_sample_value("cohabit_http_requests_total", labels) or 0.0


async def test_a_failure_in_the_middle_is_neither_logged_nor_counted_as_served(
    house: House,
) -> None:
    before = {outcome: requests_counted(outcome) for outcome in ("ok", "engine_crashed")}
    house.peers.generate = breaks
    with structlog.testing.capture_logs() as told:
        await house.lines({**CHAT, "stream": True})
        house.peers.generate = house.peers.says_hello
        await house.lines({**CHAT, "stream": True})
        await house.http.get("/v1/nothing")
    said = [(line["status"], line["outcome"]) for line in told if line["event"] == "request"]
    assert said == [(200, "engine_crashed"), (200, "ok"), (404, "route_not_found")]
    assert {o: requests_counted(o) - before[o] for o in before} == {"ok": 1, "engine_crashed": 1}


async def test_a_lost_engine_is_an_error_event(house: House) -> None:
    house.peers.generate = house.peers.says_and_hangs
    async with house.http.stream(
        "POST", "/v1/chat/completions", json={**CHAT, "stream": True}
    ) as answer:
        chunks = answer.aiter_text()
        assert "Hel" in await anext(chunks)
        await house.engine_server.grpc.stop(0)
        rest = "".join([chunk async for chunk in chunks])
    assert json.loads(rest.strip().removeprefix("data: "))["error"]["code"] == "engine_crashed"
    await house.peers.seen("admit over")


async def test_an_engine_that_is_not_there_is_503(house: House) -> None:
    await house.engine_server.grpc.stop(0)
    answer = await house.http.post("/v1/chat/completions", json={**CHAT, "stream": True})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    await house.peers.seen("admit over")


async def test_a_request_that_ran_too_long_is_504_and_not_to_be_repeated(house: House) -> None:
    revoked = asyncio.Event()

    async def ends_it(_request: Any, _context: Any) -> AsyncIterator[Any]:
        yield house.peers.granted()
        await house.peers.seen("generate")
        revoked.set()
        raise Fault(Reason.RUN_TOO_LONG, "It ran longer than its lane allows and was ended.")

    async def is_revoked(_request: Any, context: Any) -> AsyncIterator[Any]:
        await context.send_initial_metadata(((TAKEN_IN, "1"),))
        await revoked.wait()
        raise Fault(Reason.PERMIT_REVOKED, "It has ended; ask again.", retry_after_s=1.0)
        yield

    house.peers.admit, house.peers.generate = ends_it, is_revoked
    answer = await house.http.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "run_too_long"
    assert "retry-after" not in answer.headers
    assert answer.headers["x-should-retry"] == "false"
    assert len(house.peers.admits) == 1


# Clients that go away.


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("waiting", ["queues", "loads"])
async def test_leaving_while_waiting_gives_the_place_back(
    house: House, stream: bool, waiting: str
) -> None:
    house.peers.admit = getattr(house.peers, waiting)
    async with raw_post(house, {**CHAT, "stream": stream}):
        await house.peers.seen("admit")
    await house.peers.seen("admit over")
    assert house.peers.happened == ["admit", "admit over"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("running", ["hangs", "says_and_hangs"])
async def test_leaving_while_it_runs_ends_both_calls(
    house: House, stream: bool, running: str
) -> None:
    house.peers.generate = getattr(house.peers, running)
    loop = asyncio.get_running_loop()
    async with raw_post(house, {**CHAT, "stream": stream}) as reader:
        await house.peers.seen("generate")
        if stream and running == "says_and_hangs":
            await asyncio.wait_for(reader.readuntil(b"Hel"), DEADLINE_S)
    left_at = loop.time()
    await house.peers.seen("generate over")
    await house.peers.seen("admit over")
    # Two connections: which peer hears first is the kernel's choice. That the edge lets go of the
    # engine first is shown in the unit test of admission.
    assert house.peers.happened[:2] == ["admit", "generate"]
    assert len(house.peers.happened) == 4
    assert loop.time() - left_at < 1.0


async def test_a_finished_answer_closes_admit_after_the_engine_call(house: House) -> None:
    await house.lines({**CHAT, "stream": True})
    await house.peers.seen("admit over")
    assert house.peers.happened == ["admit", "generate", "generate over", "admit over"]


# Silence.


async def test_a_silent_stream_begins_with_comments(tmp_path: Path) -> None:
    async with opened(tmp_path, keepalive_s=0.05) as house:
        release = asyncio.Event()

        async def queues_then_grants(_request: Any, _context: Any) -> AsyncIterator[Any]:
            yield pb.AdmitResponse(queued=pb.AdmitResponse.Queued(position=3, resume_token="t1"))
            await release.wait()
            yield house.peers.granted()
            await asyncio.Event().wait()

        house.peers.admit = queues_then_grants
        async with house.http.stream(
            "POST", "/v1/chat/completions", json={**CHAT, "stream": True}
        ) as answer:
            assert answer.status_code == 200
            chunks = answer.aiter_text()
            first = await anext(chunks) + await anext(chunks)
            assert first.startswith(": keepalive queued behind 3\n\n: keepalive")
            release.set()
            rest = "".join([chunk async for chunk in chunks])
        assert rest.endswith("data: [DONE]\n\n")


async def test_an_error_after_a_comment_is_an_event(tmp_path: Path) -> None:
    async with opened(tmp_path, keepalive_s=0.05) as house:
        release = asyncio.Event()

        async def fails_late(_request: Any, _context: Any) -> AsyncIterator[Any]:
            await release.wait()
            raise Fault(Reason.MODEL_FAILED, "It does not load.", retry_after_s=3)
            yield

        house.peers.admit = fails_late
        async with house.http.stream(
            "POST", "/v1/chat/completions", json={**CHAT, "stream": True}
        ) as answer:
            chunks = answer.aiter_text()
            assert await anext(chunks) == ": keepalive\n\n"
            release.set()
            rest = "".join([chunk async for chunk in chunks])
        assert rest.split("\n\n")[-2].startswith('data: {"error":{"message":"It does not load."')
        assert "[DONE]" not in rest


async def test_a_client_that_reads_nothing_is_ended(tmp_path: Path) -> None:
    async with opened(tmp_path, write_stall_s=0.3, keepalive_s=0.1) as house:

        async def floods(_request: Any, _context: Any) -> AsyncIterator[Any]:
            while True:
                yield text("x" * 65536)

        house.peers.generate = floods
        async with raw_post(house, {**CHAT, "stream": True}):
            # Though nobody reads what comes:
            await house.peers.seen("generate over")
            await house.peers.seen("admit over")


async def test_a_whole_answer_that_nobody_takes_is_cut_short(tmp_path: Path) -> None:
    size = 16 << 20

    async with opened(tmp_path, write_stall_s=0.3, max_open_requests=1) as house:

        async def talks(_request: Any, _context: Any) -> AsyncIterator[Any]:
            for _ in range(size >> 16):
                yield text("x" * 65536)
            yield finish()

        house.peers.generate = talks
        async with raw_post(house, CHAT) as reader:
            await house.peers.seen("admit over")
            # It holds its place while it is sent, and no longer:
            refused = await house.http.post("/v1/chat/completions", json=CHAT)
            assert refused.status_code == 503
            house.peers.generate = house.peers.says_hello
            async with asyncio.timeout(DEADLINE_S):
                while refused.status_code == 503:
                    refused = await house.http.post("/v1/chat/completions", json=CHAT)
            assert refused.status_code == 200
            taken = 0
            with suppress(ConnectionError):
                while data := await reader.read(1 << 20):
                    taken += len(data)
            assert 0 < taken < size


# The scheduler goes and comes.


async def test_without_a_scheduler_a_new_call_is_refused_at_once(house: House) -> None:
    await house.scheduler_server.grpc.stop(0)
    began = asyncio.get_running_loop().time()
    answer = await house.http.post("/v1/chat/completions", json={**CHAT, "stream": True})
    assert asyncio.get_running_loop().time() - began < 2.0
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["code"] == "service_unavailable"
    with pytest.raises(openai.InternalServerError):
        await house.openai.models.list()
    assert (await house.http.get("/readyz")).status_code == 503
    health = await house.http.get("/health")
    assert (health.status_code, health.json()["status"]) == (200, "degraded")


async def test_a_waiting_call_resumes_by_its_token(tmp_path: Path) -> None:
    async with opened(tmp_path, keepalive_s=0.05) as house:
        house.peers.admit = house.peers.queues
        async with (
            asyncio.timeout(DEADLINE_S),
            house.http.stream(
                "POST", "/v1/chat/completions", json={**CHAT, "stream": True}
            ) as answer,
        ):
            chunks = answer.aiter_text()
            while "queued" not in await anext(chunks):
                pass
            await house.scheduler_server.grpc.stop(0)
            house.peers.admit = house.peers.grants
            async with house.peers.scheduler():
                rest = "".join([chunk async for chunk in chunks])
        assert rest.endswith("data: [DONE]\n\n")
        assert [admit.resume_token for admit in house.peers.admits] == ["", "t1"]


async def test_a_waiting_call_gives_up_after_a_while(tmp_path: Path) -> None:
    async with opened(tmp_path, resume_s=0.3) as house:
        house.peers.admit = house.peers.queues
        call = asyncio.create_task(house.http.post("/v1/chat/completions", json=CHAT))
        await house.peers.seen("admit")
        await house.scheduler_server.grpc.stop(0)
        answer = await asyncio.wait_for(call, DEADLINE_S)
        assert answer.status_code == 503
        assert "retry-after" in answer.headers


async def test_a_scheduler_that_says_nothing_is_taken_as_gone(tmp_path: Path) -> None:
    async with opened(tmp_path, admit_answer_s=0.2) as house:

        async def silent(_request: Any, _context: Any) -> AsyncIterator[Any]:
            await asyncio.Event().wait()
            yield house.peers.granted()

        house.peers.admit = silent
        answer = await house.http.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 503
        await house.peers.seen("admit over")


async def test_a_granted_call_outlives_the_scheduler(house: House) -> None:
    go_on = asyncio.Event()

    async def says_in_two(_request: Any, _context: Any) -> AsyncIterator[Any]:
        yield text("Hel")
        await go_on.wait()
        yield finish("lo")

    house.peers.generate = says_in_two
    async with house.http.stream(
        "POST", "/v1/chat/completions", json={**CHAT, "stream": True}
    ) as answer:
        chunks = answer.aiter_text()
        assert "Hel" in await anext(chunks)
        await house.scheduler_server.grpc.stop(0)
        go_on.set()
        rest = "".join([chunk async for chunk in chunks])
    assert rest.endswith("data: [DONE]\n\n")


# The edge itself stops.


async def test_stopping_refuses_what_waits_and_ends_streams_with_an_error(
    house: House,
) -> None:
    house.peers.generate = house.peers.says_and_hangs
    async with raw_post(house, {**CHAT, "stream": True}) as reader:
        await asyncio.wait_for(reader.readuntil(b"Hel"), DEADLINE_S)
        house.peers.admit = house.peers.queues
        waiting = asyncio.create_task(house.http.post("/v1/chat/completions", json=CHAT))
        await house.peers.admitted(2)
        await asyncio.wait_for(house.edge.stop(), DEADLINE_S)
        rest = await asyncio.wait_for(reader.read(), DEADLINE_S)
    assert b"[DONE]" not in rest
    assert b'"code":"service_unavailable"' in rest
    assert rest.endswith(b"0\r\n\r\n")  # a whole answer, not a cut connection
    answer = await waiting
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"]["code"] == "service_unavailable"
