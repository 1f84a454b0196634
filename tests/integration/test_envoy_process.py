"""What the image runs: how Envoy is started, watched and stopped."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.envoy_kit import ALONE, ENVOY, Envoy, edge_of, placed_in, services_of
from tests.integration.house import ROOT, House, running, until

FOLDER = ROOT / "deploy" / "envoy"
CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 300,
    "ignore_eos": True,
    "stream": True,
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with running(tmp_path_factory.mktemp("h")) as house:
        yield house


@contextmanager
def started(folder: Path, house: House, **environment: str) -> Iterator[Envoy]:
    """As the image starts it, on a machine whose PATH has Envoy."""
    ports = placed_in(folder, [edge_of(house)], services_of(house))
    own = {
        "ENVOY_FOLDER": str(folder),
        "ENVOY_ADMIN": f"127.0.0.1:{ports['admin']}",
        "PATH": f"{ENVOY.parent}:{os.environ['PATH']}",
    }
    with (folder / "envoy.log").open("wb") as out:
        process = subprocess.Popen(
            [FOLDER / "start.sh", *ALONE],
            stdout=out,
            stderr=out,
            env=os.environ | own | environment,
            start_new_session=True,
        )
    try:
        yield Envoy(folder, ports, process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def health(envoy: Envoy) -> int:
    """What a HEALTHCHECK would say."""
    where = {"ENVOY_ADMIN": f"127.0.0.1:{envoy.ports['admin']}"}
    done = subprocess.run(
        [FOLDER / "alive.sh"],
        env=os.environ | where,
        timeout=10,
        capture_output=True,
        check=False,
    )
    return done.returncode


async def alive(envoy: Envoy) -> None:
    async def true() -> bool:
        return health(envoy) == 0

    await until(true, 30, "Envoy is alive")


async def test_it_makes_itself_a_certificate_and_says_it_is_alive(
    house: House, tmp_path: Path
) -> None:
    with started(tmp_path, house) as envoy:
        await alive(envoy)
        async with httpx.AsyncClient(verify=False) as http:
            assert (await http.get(f"{envoy.url('public')}/health")).status_code == 200
            live = await http.get(f"{envoy.url('plain')}/envoy/live")
        assert (live.status_code, live.text) == (200, "alive\n")
        assert (tmp_path / "tls" / "tls.key").stat().st_mode & 0o077 == 0
        envoy.process.terminate()
        assert envoy.process.wait(20) == 0
        assert health(envoy) != 0


async def test_what_runs_is_finished_before_it_ends(house: House, tmp_path: Path) -> None:
    with started(tmp_path, house, DRAIN_S="60") as envoy:
        await alive(envoy)
        async with (
            httpx.AsyncClient(base_url=envoy.url("plain"), timeout=60) as http,
            http.stream("POST", CHAT, json=BODY) as stream,
        ):
            lines = stream.aiter_lines()
            await anext(lines)
            envoy.process.terminate()
            assert [line async for line in lines if line][-1] == "data: [DONE]"
        assert envoy.process.wait(20) == 0


async def test_what_does_not_end_is_cut_when_its_time_is_over(house: House, tmp_path: Path) -> None:
    with started(tmp_path, house, DRAIN_S="1") as envoy:
        await alive(envoy)
        hold = {"hold_s": 60, "holder": "me"}
        async with (
            httpx.AsyncClient(base_url=envoy.url("insides"), timeout=60) as http,
            http.stream("POST", "/rest/v1/lanes/chat/holds", json=hold) as stream,
        ):
            lines = stream.aiter_lines()
            await anext(lines)
            envoy.process.terminate()
            with pytest.raises(httpx.RemoteProtocolError):
                [line async for line in lines]
        assert envoy.process.wait(20) == 0
