"""A job's events over HTTP: told to the end, resumed by revision, over restarts and silence."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chassis.errors import Fault, Reason
from cohabit.jobs.v1 import jobs_pb2 as pb
from edge.jobs import calls
from tests.cutout_kit import (
    RUNNING,
    SUCCEEDED,
    job,
    peers_of,
    pictures,
    result,
)
from tests.edge_kit import DEADLINE_S, House

EVENTS = "/v1/jobs/j1/events"
RESULT = "/v1/jobs/j1/results/r1"
FILE = bytes(range(256)) * 40


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with pictures(tmp_path, resume_s=2.0) as house:
        yield house


def events_of(text: str) -> list[tuple[int, Any]]:
    """Ids and jobs; fails on anything else but comments."""
    told = []
    for block in text.strip().split("\n\n"):
        if block.startswith(":"):
            continue
        name, number, data = block.split("\n")
        assert name == "event: job"
        body = json.loads(data.removeprefix("data: "))
        assert int(number.removeprefix("id: ")) == body["revision"]
        told.append((body["revision"], body))
    return told


async def watched(house: House, **headers: str) -> list[tuple[int, str]]:
    answer = await house.http.get(EVENTS, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [(revision, body["state"]) for revision, body in events_of(answer.text)]


# Events.


async def test_every_change_is_told_to_the_end(house: House) -> None:
    peers = peers_of(house)
    peers.jobs["j1"] = job()

    async def lives(_request: Any) -> AsyncIterator[pb.Job]:
        yield job()
        yield job()  # nothing new for a while
        yield job(state=RUNNING, revision=4, progress=0.5)
        yield job(state=SUCCEEDED, revision=7, progress=1, results=[result("r1", FILE)])
        await asyncio.Event().wait()

    peers.watch = lives
    assert await watched(house) == [(1, "queued"), (4, "running"), (7, "succeeded")]
    await peers.seen("watch over")


async def test_a_reader_goes_on_where_it_was(house: House) -> None:
    peers = peers_of(house)
    peers.jobs["j1"] = job(state=RUNNING, revision=5)

    async def lives(request: Any) -> AsyncIterator[pb.Job]:
        assert request.after_revision == 4
        yield job(state=SUCCEEDED, revision=6)

    peers.watch = lives
    assert await watched(house, **{"last-event-id": "4"}) == [(6, "succeeded")]


async def test_a_revision_that_never_was_waits_for_nothing(house: House) -> None:
    peers = peers_of(house)
    peers.jobs["j1"] = job(state=RUNNING, revision=5)

    async def lives(request: Any) -> AsyncIterator[pb.Job]:
        assert request.after_revision == 5
        yield job(state=SUCCEEDED, revision=6)

    peers.watch = lives
    assert await watched(house, **{"last-event-id": "9" * 19}) == [(6, "succeeded")]


async def test_who_has_seen_the_end_is_told_to_stop(house: House) -> None:
    peers_of(house).jobs["j1"] = job(state=SUCCEEDED, revision=7)
    answer = await house.http.get(EVENTS, headers={"last-event-id": "7"})
    assert (answer.status_code, answer.content) == (204, b"")
    assert peers_of(house).watches == []
    # Who has not is told it.
    assert await watched(house, **{"last-event-id": "6"}) == [(7, "succeeded")]


@pytest.mark.parametrize("given", ["x", "-1", "1.5", "1" * 20])
async def test_what_is_no_id_is_refused(house: House, given: str) -> None:
    peers_of(house).jobs["j1"] = job()
    answer = await house.http.get(EVENTS, headers={"last-event-id": given})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "last-event-id"


async def test_silence_is_filled(tmp_path: Path) -> None:
    async with pictures(tmp_path, keepalive_s=0.05) as house:
        peers = peers_of(house)
        peers.jobs["j1"] = job(position=3)
        run, end = asyncio.Event(), asyncio.Event()

        async def lives(_request: Any) -> AsyncIterator[pb.Job]:
            yield job(position=3)
            yield job(position=3)
            await run.wait()
            yield job(state=RUNNING, revision=2, progress=0.4)
            await end.wait()
            yield job(state=SUCCEEDED, revision=3)

        peers.watch = lives
        async with (
            asyncio.timeout(DEADLINE_S),
            house.http.stream("GET", EVENTS) as answer,
        ):
            lines = answer.aiter_lines()
            async for line in lines:
                if line == ": keepalive queued behind 3":
                    break
            run.set()
            async for line in lines:
                if line == ": keepalive running, 40%":
                    break
            end.set()
            assert "event: job" in [line async for line in lines]


async def test_a_restart_of_the_service_is_not_noticed(house: House) -> None:
    peers = peers_of(house)
    peers.jobs["j1"] = job()

    async def breaks_off(request: Any) -> AsyncIterator[pb.Job]:
        if request.after_revision == 0:
            yield job(state=RUNNING, revision=3)
            raise Fault(Reason.SERVICE_UNAVAILABLE, "Going.")
        if len(peers.watches) == 2:
            return  # told to stop, it ends its streams
        assert request.after_revision == 3
        yield job(state=SUCCEEDED, revision=4)

    peers.watch = breaks_off
    assert await watched(house) == [(3, "running"), (4, "succeeded")]
    assert len(peers.watches) == 3


async def test_a_service_that_says_nothing_is_asked_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "SILENCE_S", 0.1)
    peers = peers_of(house)
    peers.jobs["j1"] = job()

    async def falls_silent(_request: Any) -> AsyncIterator[pb.Job]:
        if len(peers.watches) == 1:
            await asyncio.Event().wait()
        yield job(state=SUCCEEDED, revision=4)

    peers.watch = falls_silent
    async with asyncio.timeout(DEADLINE_S):
        assert await watched(house) == [(4, "succeeded")]
    assert len(peers.watches) == 2


async def test_a_service_that_stays_away_ends_the_stream_with_an_error(tmp_path: Path) -> None:
    async with pictures(tmp_path, resume_s=0.1) as house:
        peers = peers_of(house)
        peers.jobs["j1"] = job()

        async def leaves(request: Any) -> AsyncIterator[pb.Job]:
            if request.after_revision == 0:
                yield job(state=RUNNING, revision=3)
            raise Fault(Reason.SERVICE_UNAVAILABLE, "Gone.", retry_after_s=1.0)

        peers.watch = leaves
        answer = await house.http.get(EVENTS)
        *told, last = answer.text.strip().split("\n\n")
        assert [one.split("\n")[1] for one in told] == ["id: 3"]
        error = json.loads(last.removeprefix("data: "))["error"]
        assert error["code"] == "service_unavailable"


async def test_a_reader_that_leaves_ends_the_watch(house: House) -> None:
    peers = peers_of(house)
    peers.jobs["j1"] = job()

    async def lives(_request: Any) -> AsyncIterator[pb.Job]:
        yield job()
        await asyncio.Event().wait()

    peers.watch = lives
    async with house.http.stream("GET", EVENTS) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                break
    await peers.seen("watch over")


async def test_streams_are_bounded_by_the_door(tmp_path: Path) -> None:
    async with pictures(tmp_path, max_open_requests=1) as house:
        peers = peers_of(house)
        done = result("r1", FILE)
        peers.jobs["j1"] = job(state=SUCCEEDED, revision=3, results=[done])
        peers.files["r1"] = FILE

        async def lives(_request: Any) -> AsyncIterator[pb.Job]:
            yield job(state=RUNNING, revision=2)
            await asyncio.Event().wait()

        peers.watch = lives
        async with house.http.stream("GET", EVENTS) as watching:
            assert watching.status_code == 200
            for path in (EVENTS, RESULT):
                answer = await house.http.get(path)
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        await peers.seen("watch over")
        async with asyncio.timeout(DEADLINE_S):
            while (answer := await house.http.get(RESULT)).status_code == 503:
                pass  # its place is free a turn of the loop later
        assert answer.content == FILE
