"""A job's results over HTTP, whole or in part, however transfers and clients end."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chassis.errors import Fault, Reason
from cohabit.jobs.v1 import jobs_pb2 as pb
from tests.cutout_kit import (
    QUEUED,
    SUCCEEDED,
    PicturePeers,
    job,
    peers_of,
    pictures,
    result,
)
from tests.edge_kit import DEADLINE_S, House

RESULT = "/v1/jobs/j1/results/r1"
FILE = bytes(range(256)) * 40
ETAG = f'"{bytes(range(32)).hex()}"'


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with pictures(tmp_path, resume_s=2.0) as house:
        yield house


# Results.


def finished(peers: PicturePeers, data: bytes = FILE, **fields: Any) -> None:
    peers.jobs["j1"] = job(state=SUCCEEDED, revision=7, results=[result("r1", data, **fields)])
    peers.files["r1"] = data


async def read(house: House, **headers: str) -> httpx.Response:
    return await house.http.get(
        RESULT, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )


async def test_a_result_is_read_whole(house: House) -> None:
    finished(peers_of(house))
    answer = await read(house)
    assert (answer.status_code, answer.content) == (200, FILE)
    assert answer.headers["content-type"] == "image/webp"
    assert answer.headers["content-length"] == str(len(FILE))
    assert (answer.headers["etag"], answer.headers["accept-ranges"]) == (ETAG, "bytes")
    assert answer.headers["content-disposition"] == 'inline; filename="j1-cutout-0.webp"'


async def test_an_empty_result_is_read(house: House) -> None:
    finished(peers_of(house), b"")
    answer = await read(house)
    assert (answer.status_code, answer.content) == (200, b"")
    assert (await read(house, range="bytes=0-")).status_code == 416


@pytest.mark.parametrize(
    ("wanted", "first", "end"),
    [
        ("bytes=100-", 100, len(FILE)),
        ("bytes=0-0", 0, 1),
        ("bytes=5-9", 5, 10),
        ("bytes=5-99999", 5, len(FILE)),
        ("bytes=-7", len(FILE) - 7, len(FILE)),
        ("bytes=-99999", 0, len(FILE)),
    ],
)
async def test_a_result_is_read_in_part(house: House, wanted: str, first: int, end: int) -> None:
    finished(peers_of(house))
    answer = await read(house, range=wanted)
    assert (answer.status_code, answer.content) == (206, FILE[first:end])
    assert answer.headers["content-range"] == f"bytes {first}-{end - 1}/{len(FILE)}"
    assert peers_of(house).reads[-1].offset_bytes == first


async def test_a_range_that_is_not_there(house: House) -> None:
    finished(peers_of(house))
    answer = await read(house, range=f"bytes={len(FILE)}-")
    assert (answer.status_code, answer.json()["error"]["code"]) == (416, "invalid_offset")
    assert answer.headers["content-range"] == f"bytes */{len(FILE)}"
    assert peers_of(house).reads == []


async def test_what_is_there_already_is_not_sent_again(house: House) -> None:
    finished(peers_of(house))
    answer = await read(house, if_none_match=ETAG)
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", ETAG)
    assert peers_of(house).reads == []
    stale = await read(house, range="bytes=5-", if_range='"another"')
    assert (stale.status_code, stale.content) == (200, FILE)


async def test_the_picture_that_was_asked_for(house: House) -> None:
    peers = peers_of(house)
    matte = result("m", b"matte", role=pb.RESULT_ROLE_MATTE)
    peers.jobs["j1"] = job(state=SUCCEEDED, results=[matte, result("r1", FILE)])
    peers.files["r1"] = FILE
    answer = await house.http.get("/v1/jobs/j1/result")
    assert (answer.status_code, answer.content) == (200, FILE)
    peers.jobs["j1"] = job(state=QUEUED)
    early = await house.http.get("/v1/jobs/j1/result")
    assert (early.status_code, early.json()["error"]["code"]) == (404, "result_not_found")
    assert "not over yet" in early.json()["error"]["message"]


async def test_a_result_that_is_not_there(house: House) -> None:
    finished(peers_of(house), expired=True)
    gone = await read(house)
    assert (gone.status_code, gone.json()["error"]["code"]) == (410, "result_expired")
    other = await house.http.get("/v1/jobs/j1/results/r2")
    assert (other.status_code, other.json()["error"]["code"]) == (404, "result_not_found")


async def test_a_broken_transfer_goes_on_where_it_stopped(house: House) -> None:
    peers = peers_of(house)
    finished(peers)

    async def breaks_off(request: Any) -> AsyncIterator[bytes]:
        yield FILE[request.offset_bytes : request.offset_bytes + 4000]
        if len(peers.reads) == 1:
            raise Fault(Reason.SERVICE_UNAVAILABLE, "Going.")

    peers.read = breaks_off
    answer = await read(house)
    assert (answer.status_code, answer.content) == (200, FILE)
    assert [one.offset_bytes for one in peers.reads] == [0, 4000, 8000]


async def test_a_transfer_that_gets_on_is_never_given_up(tmp_path: Path) -> None:
    async with pictures(tmp_path, resume_s=0.1) as house:
        peers = peers_of(house)
        finished(peers)

        async def breaks_off(request: Any) -> AsyncIterator[bytes]:
            yield FILE[request.offset_bytes : request.offset_bytes + 1000]
            raise Fault(Reason.SERVICE_UNAVAILABLE, "Going.")

        peers.read = breaks_off
        answer = await read(house)
        assert (answer.content, len(peers.reads)) == (FILE, 11)


async def test_a_file_that_is_shorter_than_it_was_is_given_up(tmp_path: Path) -> None:
    async with pictures(tmp_path, resume_s=0.1) as house:
        finished(peers_of(house))

        async def gives_less(request: Any) -> AsyncIterator[bytes]:
            yield FILE[request.offset_bytes : 100]

        peers_of(house).read = gives_less
        with pytest.raises(httpx.RemoteProtocolError):
            await read(house)
        await ended_with(house, "service_unavailable")


async def test_a_failure_before_the_first_byte_has_its_status(house: House) -> None:
    finished(peers_of(house))

    async def fails(_request: Any) -> AsyncIterator[bytes]:
        raise Fault(Reason.RESULT_EXPIRED, "It has gone meanwhile.")
        yield b""

    peers_of(house).read = fails
    answer = await read(house)
    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "result_expired")


async def test_a_failure_after_it_cuts_the_connection(house: House) -> None:
    finished(peers_of(house))

    async def fails(_request: Any) -> AsyncIterator[bytes]:
        yield FILE[:100]
        raise Fault(Reason.RESULT_EXPIRED, "It has gone meanwhile.")

    peers_of(house).read = fails
    with pytest.raises(httpx.RemoteProtocolError):
        await read(house)
    await ended_with(house, "result_expired")


async def ended_with(house: House, outcome: str) -> None:
    """Returns once the metrics have it that an answer was cut short for that reason."""
    labels = f'outcome="{outcome}",route="/v1/jobs/{{job_id}}/results/{{result_id}}",status="499"'
    async with asyncio.timeout(DEADLINE_S):
        while labels not in (await house.http.get("/metrics")).text:
            pass  # told when the request is over, which is a turn of the loop away


async def test_a_client_that_leaves_ends_the_read(house: House) -> None:
    peers = peers_of(house)
    finished(peers)

    async def hangs(_request: Any) -> AsyncIterator[bytes]:
        yield FILE[:100]
        await asyncio.Event().wait()

    peers.read = hangs
    async with house.http.stream("GET", RESULT) as answer:
        async for _ in answer.aiter_raw():
            break
    await peers.seen("read over")


async def test_a_client_that_takes_nothing_is_left(tmp_path: Path) -> None:
    async with pictures(tmp_path, write_stall_s=0.1) as house:
        peers = peers_of(house)
        huge = bytes(64 << 20)
        finished(peers, huge)

        async def pours(request: Any) -> AsyncIterator[bytes]:
            for at in range(request.offset_bytes, len(huge), 1 << 20):
                yield huge[at : at + (1 << 20)]

        peers.read = pours
        host, port = house.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(f"GET {RESULT} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await peers.seen("read over")
        await ended_with(house, "slow_reader")
        writer.transport.abort()
