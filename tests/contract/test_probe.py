"""`python -P -m chassis.probe`, as the health check of a container runs it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from chassis.probe import PROBE_ENV, address_here
from chassis.server import Server


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    path = tmp_path / "cohabit.yaml"
    path.write_text("run_dir: run\nbroker: {}\n")
    return path


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Server]:
    """Something where the configuration has the broker, that says NOT_SERVING."""
    server = Server((), drain_s=0.1)
    await server.start(f"unix:{tmp_path}/run/broker.sock")
    yield server
    await server.stop()


async def probe(configured: Path, *arguments: str, named: str = "") -> tuple[int, str]:
    """Exit status and words."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "chassis.probe", "--config", str(configured), *arguments),
        env={**os.environ, PROBE_ENV: named},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_a_service_is_healthy_when_it_says_so(configured: Path, broker: Server) -> None:
    assert (await probe(configured, "broker"))[0] == 1
    await broker.set_serving(True)
    assert await probe(configured, "broker") == (0, "")
    assert await probe(configured, named="broker") == (0, "")
    address = f"unix:{configured.parent}/run/broker.sock"
    assert await probe(configured, address) == (0, "")


async def test_one_that_is_away_is_told_in_a_sentence(configured: Path) -> None:
    status, said = await probe(configured, "broker")
    assert (status, said.count("\n")) == (1, 1)
    assert "does not answer" in said


async def test_a_wrong_question_is_no_answer(configured: Path) -> None:
    status, said = await probe(configured, "browser")
    assert status == 2
    assert "expected one of broker, scheduler" in said
    assert (await probe(configured))[0] == 2


async def test_a_url_is_got(configured: Path) -> None:
    class Edge(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/readyz" else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Edge)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        assert await probe(configured, f"{url}/readyz") == (0, "")
        status, said = await probe(configured, f"{url}/else")
        assert (status, said) == (1, f"{url}/else answers 503\n")
    finally:
        server.shutdown()
        server.server_close()
    assert (await probe(configured, f"{url}/readyz"))[0] == 1


@pytest.mark.parametrize(
    ("listen", "here"),
    [
        ("0.0.0.0:9101", "127.0.0.1:9101"),
        ("[::]:9101", "[::1]:9101"),
        ("10.1.2.3:9101", "10.1.2.3:9101"),
        ("unix:/run/cohabit/broker.sock", "unix:/run/cohabit/broker.sock"),
    ],
)
def test_what_listens_everywhere_is_dialled_here(listen: str, here: str) -> None:
    assert address_here(listen) == here
