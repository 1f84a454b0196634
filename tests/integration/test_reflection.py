"""Every service can be listed and called knowing its address alone, as with grpcurl."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.house import House, running

BUF = Path(sys.executable).with_name("buf")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with running(tmp_path_factory.mktemp("h")) as house:
        yield house


def curl(house: House, service: str, *arguments: str) -> str:
    done = subprocess.run(
        [
            str(BUF), "curl", "--protocol", "grpc", "--http2-prior-knowledge",
            "--unix-socket", house.address(service).removeprefix("unix:"), *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("service", "name"),
    [
        ("broker", "cohabit.broker.v1.BrokerService"),
        ("scheduler", "cohabit.scheduler.v1.SchedulerService"),
        ("llm", "cohabit.models.v1.ModelService"),
        ("llm", "cohabit.llm.v1.LanguageModelService"),
    ],
)
def test_services_are_listed(house: House, service: str, name: str) -> None:
    assert f"{name}/" in curl(house, service, "--list-methods", "http://localhost")


@pytest.mark.parametrize(
    ("service", "method", "holds"),
    [
        ("broker", "cohabit.broker.v1.BrokerService/GetDeviceMemory", "devices"),
        ("broker", "grpc.health.v1.Health/Check", "SERVING"),
        ("scheduler", "cohabit.scheduler.v1.SchedulerService/GetStatus", "permitsTotal"),
        ("llm", "cohabit.models.v1.ModelService/ListModels", "tiny"),
    ],
)
def test_services_answer(house: House, service: str, method: str, holds: str) -> None:
    assert holds in curl(house, service, "-d", "{}", f"http://localhost/{method}")


def test_a_generation_by_hand_is_admitted(house: House) -> None:
    request = {"model": "tiny", "prompt": "hello", "maxTokens": 3, "ignoreEos": True}
    method = "cohabit.llm.v1.LanguageModelService/Generate"
    said = curl(house, "llm", "-d", json.dumps(request), f"http://localhost/{method}")
    assert '"finish"' in said
    assert '"completionTokens": 3' in said or '"completionTokens":3' in said
