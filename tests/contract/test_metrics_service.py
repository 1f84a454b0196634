"""Every server tells the metrics of its process, fresh, over its own address."""

import asyncio
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
from prometheus_client import Gauge, start_http_server

from chassis import metrics
from chassis.metrics import on_scrape
from edge.signals import gathering
from tests.metrics_kit import values_in, values_of
from tests.server_kit import revoke, serving

FRESH = Gauge("cohabit_test_fresh", "Set by who is asked to.")
ROOT = Path(__file__).parents[2]


async def test_calls_are_counted_and_told(tmp_path: Path) -> None:
    async with serving(f"unix:{tmp_path}/s.sock") as it:
        call = (
            'cohabit_grpc_calls_total{grpc_code="OK",grpc_method="RevokePermit",'
            'grpc_service="cohabit.models.v1.EngineService",reason=""}'
        )
        before = (await values_of(it.target)).get(call, 0)
        await it.stub.RevokePermit(revoke("now"))
        told = await values_of(it.target)
        assert told[call] == before + 1
        assert told["process_start_time_seconds"] > 0
        assert not [name for name in told if name.endswith("_created")]


async def test_who_refreshes_is_asked_first_and_may_fail(tmp_path: Path) -> None:
    asked = 0

    async def refresh() -> None:
        nonlocal asked
        asked += 1
        FRESH.set(asked)

    async def broken() -> None:
        raise ZeroDivisionError

    forget, forget_broken = on_scrape(refresh), on_scrape(broken)
    async with serving(f"unix:{tmp_path}/s.sock") as it:
        assert (await values_of(it.target))["cohabit_test_fresh"] == 1
        assert (await values_of(it.target))["cohabit_test_fresh"] == 2
        forget()
        assert (await values_of(it.target))["cohabit_test_fresh"] == 2
    forget_broken()


async def test_a_driver_that_hangs_costs_its_own_figures_alone(tmp_path: Path) -> None:
    async def hangs(_: int) -> None:
        await asyncio.Event().wait()

    async def refresh() -> None:
        FRESH.set(5)

    forget = [*(on_scrape(partial(hangs, one)) for one in range(3)), on_scrape(refresh)]
    async with serving(f"unix:{tmp_path}/s.sock") as it:
        told = await values_of(it.target, within_s=gathering.ANSWER_S)  # as long as the edge waits
        assert told["cohabit_test_fresh"] == 5
    for one in forget:
        one()


async def test_a_port_of_its_own_is_as_fresh() -> None:
    async def refresh() -> None:
        FRESH.set(77)

    forget = on_scrape(refresh)
    server, thread = start_http_server(0, "127.0.0.1", registry=metrics._Fresh())
    try:
        at = f"http://127.0.0.1:{server.server_port}/metrics"
        async with httpx.AsyncClient(trust_env=False) as http:
            assert values_in((await http.get(at)).text)["cohabit_test_fresh"] == 77
            some = (await http.get(at, params={"name[]": "cohabit_test_fresh"})).text
            assert list(values_in(some)) == ["cohabit_test_fresh"]
    finally:
        forget()
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join()


WORKER = """
import asyncio, sys
from chassis import metrics
metrics.CALLS.labels("s", "m", "OK", "").inc(int(sys.argv[1]))
metrics.OPEN_CALLS.labels("s", "m").inc(int(sys.argv[1]))
print(asyncio.run(metrics.text()))
"""
CALLS = 'cohabit_grpc_calls_total{grpc_code="OK",grpc_method="m",grpc_service="s",reason=""}'
OPEN = 'cohabit_grpc_open_calls{grpc_method="m",grpc_service="s"}'


def worker(folder: Path, slot: int, count: int) -> dict[str, float]:
    """A process that counts as worker `slot`, and what it then tells."""
    environment = {
        "PYTHONPATH": f"{ROOT}:{ROOT}/gen",
        metrics.SHARED_ENV: str(folder),
        metrics.WORKER_ENV: str(slot),
    }
    command = [sys.executable, "-P", "-c", WORKER, str(count)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return values_in(run.stdout)


def test_workers_count_together_and_go_on_where_they_ended(tmp_path: Path) -> None:
    worker(tmp_path, 0, 3)
    told = worker(tmp_path, 1, 4)
    assert (told[CALLS], told[OPEN]) == (7, 7)
    metrics.worker_over(tmp_path, 0)  # it was killed in the middle of its calls
    told = worker(tmp_path, 0, 5)
    assert (told[CALLS], told[OPEN]) == (12, 9)
    files = sorted(path.name for path in tmp_path.glob("counter_*"))
    assert files == ["counter_0.db", "counter_1.db"]
