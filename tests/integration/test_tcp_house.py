"""The house over TCP: services that nobody supervises, certificates, ports of engines."""

import asyncio
import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import httpx
import pytest

from chassis import tls
from chassis.channel import open_channel
from chassis.tls import TlsFiles
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from tests.integration.house import REAL_MODEL, ROOT, free_port, started
from tests.integration.tcp_house import SERVICES, TcpHouse, tcp_house
from tests.tls_kit import certify


def own_files(house: TcpHouse) -> TlsFiles:
    folder = house.folder / "certificates"
    return TlsFiles(folder / "ca.pem", folder / "service.pem", folder / "service.key")


async def engine_address(house: TcpHouse) -> str:
    """Where the scheduler says that the engine of `tiny` is."""
    tls.adopt(own_files(house))
    try:
        async with open_channel(house.addresses["scheduler"]) as channel:
            stub: scheduler_pb2_grpc.SchedulerServiceAsyncStub = (
                scheduler_pb2_grpc.SchedulerServiceStub(channel)
            )
            listed = await stub.ListModels(scheduler_pb2.ListModelsRequest(), timeout=5)
    finally:
        tls.adopt(None)
    (tiny,) = (model for model in listed.models if model.key == "tiny")
    return tiny.instances[0].address


@pytest.mark.parametrize("order", [SERVICES, SERVICES[::-1]], ids=["usual", "backwards"])
async def test_services_come_in_any_order_and_come_back(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    with tcp_house(tmp_path) as house:
        house.start("edge")
        for service in order:
            house.start(service)
        await house.chats()
        first, last = house.engine_ports
        address = await engine_address(house)
        assert address.startswith("127.0.0.1:")  # of this host, towards the scheduler
        assert first <= int(address.rpartition(":")[2]) <= last
        for service in (*order, "edge"):
            house.end(service)
            house.start(service)
            await house.chats()
        assert "Traceback" not in house.log.read_text()


async def test_strangers_are_heard_nowhere(tmp_path: Path) -> None:
    foreign = certify(tmp_path / "foreign")
    with tcp_house(tmp_path) as house:
        for service in (*SERVICES, "edge"):
            house.start(service)
        await house.chats()
        targets = [*house.addresses.values(), await engine_address(house)]
        for target in targets:
            for files in (None, foreign):
                tls.adopt(files)
                try:
                    channel = open_channel(target)
                finally:
                    tls.adopt(None)
                stub: models_pb2_grpc.EngineServiceAsyncStub = models_pb2_grpc.EngineServiceStub(
                    channel
                )
                async with channel, asyncio.timeout(5):
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await stub.DrainEngine(models_pb2.DrainEngineRequest(), timeout=10)
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE, target
        await house.chats()


async def test_a_foreign_program_at_a_port_is_passed_over(tmp_path: Path) -> None:
    with tcp_house(tmp_path, engines=2) as house, socket.socket() as foreign:
        foreign.bind(("127.0.0.1", house.engine_ports[0]))
        foreign.listen()
        for service in (*SERVICES, "edge"):
            house.start(service)
        await house.chats()
        assert await engine_address(house) == f"127.0.0.1:{house.engine_ports[1]}"
        answer = await house.ask("twin")
        assert answer.status_code == 503, answer.text
        assert "widen engine_ports" in answer.json()["error"]["message"]
        foreign.close()
        await house.chats("twin")


def test_certificates_that_do_not_do_stop_every_service_at_once(tmp_path: Path) -> None:
    with tcp_house(tmp_path) as house:
        own_files(house).key.unlink()
        for module in ("services.broker", "edge", "cli"):
            argv = [sys.executable, "-P", "-m", module]
            argv += ["up"] if module == "cli" else []
            done = subprocess.run(
                [*argv, "--config", str(house.config)],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            assert done.returncode == 2, done.stderr
            assert re.search(r"cohabit\.yaml:\d+: tls\.key: expected a readable PEM", done.stderr)


@pytest.mark.model
def test_the_example_runs_under_the_launcher_and_the_command_finds_it(tmp_path: Path) -> None:
    certify(tmp_path / ".cohabit" / "certificates")
    (tmp_path / "examples").mkdir()
    port = free_port()
    written = (ROOT / "examples" / "tcp.yaml").read_text()
    for fixed in ("9101", "9102", "9103"):
        written = written.replace(f"127.0.0.1:{fixed}", f"127.0.0.1:{free_port()}")
    written = written.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    written = written.replace("../models", str(REAL_MODEL.parent))
    path = tmp_path / "examples" / "cohabit.yaml"
    path.write_text(written)
    with started(path, port) as house:
        body = {"model": "smollm2", "messages": [{"role": "user", "content": "Hello"}]}
        answer = httpx.post(
            f"{house.url}/v1/chat/completions", json={**body, "max_tokens": 3}, timeout=60
        )
        assert answer.status_code == 200, answer.text
        argv = [sys.executable, "-P", "-m", "cli", "models", "--json", "--config", str(path)]
        said = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
        assert "smollm2" in json.dumps(json.loads(said.stdout))
