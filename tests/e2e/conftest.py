"""The end-to-end test is asked for by E2E=1; without, it says so and is skipped.

It builds images and runs the house in containers (deploy/docker, deploy/compose), for minutes.
"""

import os
import socket
from collections.abc import Iterator

import openai
import pytest

from tests.e2e.composed import VERSIONS, Composed
from tests.e2e.engine import NoEngine, engine
from tests.e2e.times import TIMES

ASKED = os.environ.get("E2E") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not ASKED:
        for item in items:
            if "tests/e2e" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason="end to end in containers: only by E2E=1"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TIMES.rows:
        terminalreporter.section("end to end, in containers")
        for line in TIMES.table():
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def house() -> Iterator[Composed]:
    try:
        with engine() as docker:
            house = Composed(docker, _free_port(), _free_port())
            house.down()  # what an interrupted run may have left
            for image, took_s, size in house.build(VERSIONS[0]):
                TIMES.add(f"image {image}", took_s, size)
            try:
                with TIMES.of("compose up --wait"):
                    house.up()
                yield house
            finally:
                with TIMES.of("compose down -v"):
                    house.down()
    except NoEngine as error:
        pytest.exit(str(error), returncode=1)


@pytest.fixture(scope="session")
def key(house: Composed) -> str:
    return house.key("client")


@pytest.fixture
def client(house: Composed, key: str) -> Iterator[openai.OpenAI]:
    http = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(
        base_url=f"{house.url}/v1", api_key=key, max_retries=0, timeout=120, http_client=http
    ) as client:
        yield client


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
