"""An edge of several workers, as processes: what they share, and what happens when one dies."""

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from chassis.errors import Fault, Reason
from chassis.process import child_env
from tests.edge_kit import MODEL, Peers, text
from tests.edge_process import DEADLINE_S, EdgeProcess, edge_process
from tests.integration.house import until
from tests.keys_kit import bearing, write_keys

ASK: dict[str, Any] = {"model": MODEL, "input": "Hello"}


class Crew:
    """A running edge, and one client for each of its workers."""

    def __init__(self, edge: EdgeProcess, peers: Peers, clients: list[httpx.AsyncClient]) -> None:
        self.edge, self.peers, self.clients = edge, peers, clients

    async def ask(self, worker: int, **changes: Any) -> httpx.Response:
        return await self.clients[worker].post("/v1/responses", json=ASK | changes)

    async def each_asked(self) -> list[str]:
        """A response of each worker: their ids."""
        return [(await self.ask(worker)).json()["id"] for worker in range(len(self.clients))]


@asynccontextmanager
async def crew(
    folder: Path, workers: int = 2, kind: Callable[[Path], Peers] = Peers, **edge: Any
) -> AsyncIterator[Crew]:
    peers = kind(folder)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(peers.scheduler())
        await stack.enter_async_context(peers.engine())
        running = await stack.enter_async_context(
            edge_process(
                folder / "edge", peers.scheduler_address, peers.engine_address,
                workers=workers, **edge,
            )
        )  # fmt: skip
        clients = [await stack.enter_async_context(running.client()) for _ in range(workers)]
        for client in clients:  # each opens its connection, and keeps it
            assert (await client.get("/health")).json() == {"status": "ok"}
        yield Crew(running, peers, clients)


def slot_of(name: str) -> int:
    """The worker that answered the response of this id."""
    return int(name[-2:], 16)


def slots(names: list[str]) -> list[int]:
    return sorted(map(slot_of, names))


async def test_connections_are_spread_evenly_however_they_come(tmp_path: Path) -> None:
    async with crew(tmp_path) as it:
        assert slots(await it.each_asked()) == [0, 1]
        more = [it.edge.client() for _ in range(14)]
        asks = (client.post("/v1/responses", json=ASK) for client in more)
        names = [answer.json()["id"] for answer in await asyncio.gather(*asks)]
        assert Counter(slots(names)) == {0: 7, 1: 7}
        for client in more:
            await client.aclose()


async def test_a_response_of_one_worker_is_found_by_the_other(tmp_path: Path) -> None:
    async with crew(tmp_path) as it:
        made = (await it.ask(0)).json()
        there = it.clients[1]
        assert (await there.get(f"/v1/responses/{made['id']}")).json() == made
        items = (await there.get(f"/v1/responses/{made['id']}/input_items")).json()
        assert items["data"][0]["content"][0]["text"] == "Hello"
        again = await it.ask(1, input="And now?", previous_response_id=made["id"])
        assert again.status_code == 200
        turns = it.peers.generates[-1].conversation.messages
        said = [turn.content[0].text for turn in turns]
        assert said == ["Hello", "Hello", "And now?"]

        stranger = await there.get(f"/v1/responses/{made['id']}", headers={"x-cohabit-key": "eve"})
        assert stranger.status_code == 404
        assert (await there.delete(f"/v1/responses/{made['id']}")).json()["deleted"] is True
        assert (await it.clients[0].get(f"/v1/responses/{made['id']}")).status_code == 404


async def test_the_next_turn_may_come_at_once_and_through_another_worker(tmp_path: Path) -> None:
    """The last event of an answer is out a moment before it is kept."""
    async with crew(tmp_path) as it:
        for _ in range(20):
            ask = ASK | {"stream": True}
            async with it.clients[0].stream("POST", "/v1/responses", json=ask) as s:
                async for line in s.aiter_lines():
                    if line.startswith("data: ") and '"response.completed"' in line:
                        name = json.loads(line[6:])["response"]["id"]
                        again = await it.ask(1, previous_response_id=name)
                        assert again.status_code == 200, again.text


async def test_a_response_is_cancelled_through_another_worker(tmp_path: Path) -> None:
    async with crew(tmp_path) as it:
        it.peers.generate = it.peers.says_and_hangs
        there = it.clients[1]
        async with it.clients[0].stream("POST", "/v1/responses", json=ASK | {"stream": True}) as s:
            lines = s.aiter_lines()
            name = await anext(_ids(lines))
            await it.peers.seen("generate")
            looked = (await there.get(f"/v1/responses/{name}")).json()
            assert looked["status"] == "in_progress"
            refused = await it.ask(1, previous_response_id=name)
            assert "not complete yet" in refused.json()["error"]["message"]
            assert (await there.delete(f"/v1/responses/{name}")).status_code == 400
            eve = {"x-cohabit-key": "eve"}
            assert (
                await there.post(f"/v1/responses/{name}/cancel", headers=eve)
            ).status_code == 404

            left = (await there.post(f"/v1/responses/{name}/cancel")).json()
            assert left["status"] == "cancelled"
            await it.peers.seen("generate over")
            assert any('"code":"cancelled"' in line for line in [line async for line in lines])
        assert (await there.get(f"/v1/responses/{name}")).json()["status"] == "cancelled"
        again = await there.post(f"/v1/responses/{name}/cancel")
        assert "nothing to cancel" in again.json()["error"]["message"]


async def _ids(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    async for line in lines:
        if line.startswith("data: "):
            yield json.loads(line[6:])["response"]["id"]


async def test_bounds_hold_over_all_workers(tmp_path: Path) -> None:
    async with crew(tmp_path, max_open_requests=2, stored_responses=2) as it:
        it.peers.generate = it.peers.says_and_hangs
        for client in it.clients:
            request = client.build_request("POST", "/v1/responses", json=ASK | {"stream": True})
            answer = await client.send(request, stream=True)
            assert answer.status_code == 200
        async with it.edge.client() as third:
            full = await third.post("/v1/responses", json=ASK)
            assert (full.status_code, full.headers["retry-after"]) == (503, "1")


async def test_the_store_is_one_and_bounded(tmp_path: Path) -> None:
    async with crew(tmp_path, stored_responses=2) as it:
        first, second = await it.each_asked()
        third = (await it.ask(1)).json()["id"]
        found = [
            (await it.clients[0].get(f"/v1/responses/{name}")).status_code
            for name in (first, second, third)
        ]
        assert found == [404, 200, 200]


async def test_metrics_and_failures_are_those_of_all_workers(tmp_path: Path) -> None:
    async with crew(tmp_path) as it:
        await it.each_asked()
        it.peers.generate = fails
        for worker in range(2):
            assert (await it.ask(worker)).status_code == 503
        for client in it.clients:
            text = (await client.get("/metrics")).text
            assert counted(text, status="200") == 2
            assert counted(text, status="503") == 2
            assert "cohabit_edge_workers_up" in text
            failures = (await client.get("/errors")).json()["data"]
            assert [(one["route"], one["status"]) for one in failures] == [
                ("/v1/responses", 503)
            ] * 2
        # What a dead one has counted stays, what it held does not.
        it.edge.workers()[0].kill()
        async with it.edge.client() as client:
            assert counted((await client.get("/metrics")).text, status="200") == 2


async def fails(_request: Any, _context: Any) -> AsyncIterator[Any]:
    raise Fault(Reason.MODEL_FAILED, "It is broken.")
    yield


def counted(text: str, **labels: str) -> float:
    """Requests of the responses route with these labels, all together."""
    # The services of this test are in its process, with whatever earlier tests have counted.
    wanted = {"route": "/v1/responses", "service": "edge", **labels}
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "cohabit_http_requests_total" and wanted.items() <= sample.labels.items()
    )


async def test_limits_of_a_key_hold_over_all_workers_and_death_gives_back(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.yaml", alice={"concurrent": 1})
    async with crew(tmp_path, keys_file=str(keys)) as it:
        it.peers.generate = it.peers.says_and_hangs
        mine = bearing("alice")
        request = it.clients[0].build_request(
            "POST", "/v1/responses", json=ASK | {"stream": True}, headers=mine
        )
        held = await it.clients[0].send(request, stream=True)
        assert held.status_code == 200
        lines = held.aiter_lines()  # kept: without it the stream would be left
        name = await anext(_ids(lines))
        too_much = await it.clients[1].post("/v1/responses", json=ASK, headers=mine)
        assert too_much.status_code == 429
        it.edge.worker(slot_of(name)).kill()
        it.peers.generate = it.peers.says_hello

        async def let_in() -> bool:
            answer = await it.clients[1].post("/v1/responses", json=ASK, headers=mine)
            return answer.status_code == 200

        await until(let_in, DEADLINE_S, "a place given back")
        with pytest.raises(httpx.HTTPError):
            _ = [line async for line in lines]


async def test_a_worker_that_dies_costs_its_own_answers_alone(tmp_path: Path) -> None:
    async with crew(tmp_path) as it:
        kept = await it.each_asked()
        gate = asyncio.Event()

        async def says_in_the_end(_request: Any, _context: Any) -> AsyncIterator[Any]:
            yield text("Hel")
            await gate.wait()
            async for message in Peers.says_hello(it.peers, _request, _context):
                yield message

        it.peers.generate = says_in_the_end
        asks = [asyncio.create_task(it.ask(worker)) for worker in range(2)]
        await it.peers.admitted(4)
        by_slot = it.edge.workers()
        victim = by_slot[0]
        victim.kill()
        gate.set()
        told = await asyncio.gather(*asks, return_exceptions=True)
        lived = [it for it in told if isinstance(it, httpx.Response)]
        assert len(lived) == 1
        assert lived[0].json()["status"] == "completed"

        async def back() -> bool:
            pids = {process.pid for process in it.edge.workers()}
            async with it.edge.client() as client:
                health = (await client.get("/health")).json()
            return len(pids) == 2 and victim.pid not in pids and health["status"] == "ok"

        await until(back, 40, "a new worker")
        for name in kept:  # what had been kept is in the parent
            async with it.edge.client() as client:
                assert (await client.get(f"/v1/responses/{name}")).status_code == 200
        ended = [line for line in it.edge.log if "a worker ended" in line]
        assert len(ended) == 1
        assert "signal 9" in ended[0]


async def test_health_says_that_a_worker_is_missing(tmp_path: Path) -> None:
    async with crew(tmp_path) as it:
        it.edge.workers()[0].kill()

        async def amiss() -> bool:
            try:
                async with it.edge.client() as client:
                    health = (await client.get("/health")).json()
            except httpx.TransportError:  # it was given to the one that is just dying
                return False
            said: str = health.get("reason", "")
            return said == "Of the edge's 2 worker processes 1 take requests."

        await until(amiss, DEADLINE_S, "the reason")


async def test_workers_die_with_their_parent(tmp_path: Path) -> None:
    async with crew(tmp_path) as it:
        workers = it.edge.workers()
        it.edge.process.kill()
        _, alive = await asyncio.to_thread(psutil.wait_procs, workers, timeout=DEADLINE_S)
        assert not alive


@pytest.mark.parametrize("stream", [False, True])
async def test_running_answers_end_and_then_all_of_them(tmp_path: Path, stream: bool) -> None:
    async with crew(tmp_path, drain_s=DEADLINE_S) as it:
        gate = asyncio.Event()

        async def waits(_request: Any, _context: Any) -> AsyncIterator[Any]:
            yield text("Hel")
            await gate.wait()
            async for message in Peers.says_hello(it.peers, _request, _context):
                yield message

        it.peers.generate = waits
        asks = [asyncio.create_task(it.ask(worker, stream=stream)) for worker in range(2)]
        await it.peers.admitted(2)
        # As a service manager does: to every process at once.
        for process in it.edge.workers():
            process.send_signal(signal.SIGTERM)
        it.edge.terminate()

        async def refused() -> bool:
            try:
                async with it.edge.client(timeout=1) as client:
                    await client.get("/health")
            except httpx.ConnectError:
                return True
            return False

        await until(refused, DEADLINE_S, "the end of listening")
        gate.set()
        answers = await asyncio.gather(*asks)
        assert all("completed" in answer.text for answer in answers)
        assert await it.edge.ended() == 0


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with crew(tmp_path, drain_s=60) as it:
        it.peers.generate = it.peers.says_and_hangs
        ask = asyncio.create_task(it.ask(0))
        await it.peers.seen("generate")
        workers = it.edge.workers()
        it.edge.terminate()
        await until(lambda: _said(it.edge, '"stopping"'), DEADLINE_S, "the first signal")
        it.edge.terminate()
        assert await it.edge.ended() == 128 + signal.SIGTERM
        _, alive = await asyncio.to_thread(psutil.wait_procs, workers, timeout=DEADLINE_S)
        assert not alive
        with pytest.raises(httpx.HTTPError):
            await ask


async def _said(edge: EdgeProcess, word: str) -> bool:
    return any(word in line for line in edge.log)


async def test_a_worker_is_not_started_by_hand() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "edge.workers.worker",
        env=child_env(), stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode == 1
    assert said.decode().startswith("A worker of the edge is started by `python -P -m edge`")
