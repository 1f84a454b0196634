"""Envoy before services that ask their callers who they are."""

import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import pytest

from cohabit.scheduler.v1 import scheduler_pb2_grpc
from deploy.envoy.place import ClientTls
from tests.edge_kit import Peers
from tests.envoy_kit import running_envoy


@dataclass(frozen=True)
class Authority:
    """Certificates of one house."""

    folder: Path

    def __post_init__(self) -> None:
        self._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", "/CN=house", "-keyout", "ca.key", "-out", "ca.pem",
        )  # fmt: skip

    def sign(self, who: str, name: str = "cohabit.internal") -> ClientTls:
        self._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", f"/CN={who}", "-addext", f"subjectAltName=DNS:{name}",
            "-addext", "basicConstraints=critical,CA:FALSE",
            "-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", f"{who}.key", "-out", f"{who}.pem",
        )  # fmt: skip
        ca, certificate, key = (self.folder / one for one in ("ca.pem", f"{who}.pem", f"{who}.key"))
        return ClientTls(str(ca), str(certificate), str(key))

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)


SCRIPTED: Callable[[Path], Peers] = Peers


def demanding(own: ClientTls) -> grpc.ServerCredentials:
    pair = (Path(own.key).read_bytes(), Path(own.certificate).read_bytes())
    return grpc.ssl_server_credentials([pair], Path(own.ca).read_bytes(), require_client_auth=True)


@asynccontextmanager
async def scheduler(folder: Path, own: ClientTls) -> AsyncIterator[str]:
    """One that hears nobody whom its authority does not know; its address."""
    server, scripted = grpc.aio.server(), SCRIPTED(folder)
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(scripted, server)
    port = server.add_secure_port("127.0.0.1:0", demanding(own))
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def status(folder: Path, address: str, shown: ClientTls | None) -> int:
    services = dict.fromkeys(("scheduler", "broker", "jobs"), address)
    with running_envoy(folder, ["127.0.0.1:1"], services, tls=shown) as envoy:
        async with httpx.AsyncClient() as http:
            answer = await http.get(f"{envoy.url('insides')}/rest/v1/status")
    return answer.status_code


@pytest.fixture
def house(tmp_path: Path) -> Authority:
    (tmp_path / "house").mkdir()
    return Authority(tmp_path / "house")


async def test_envoy_shows_its_certificate(house: Authority, tmp_path: Path) -> None:
    async with scheduler(tmp_path, house.sign("scheduler")) as address:
        assert await status(tmp_path / "e", address, house.sign("envoy")) == 200


async def test_without_one_it_is_not_heard(house: Authority, tmp_path: Path) -> None:
    async with scheduler(tmp_path, house.sign("scheduler")) as address:
        assert await status(tmp_path / "e", address, None) == 503


async def test_a_service_of_another_name_is_not_believed(house: Authority, tmp_path: Path) -> None:
    async with scheduler(tmp_path, house.sign("scheduler", "elsewhere.example")) as address:
        assert await status(tmp_path / "e", address, house.sign("envoy")) == 503


async def test_a_service_of_another_house_is_not_believed(house: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    own = house.sign("envoy")
    async with scheduler(tmp_path, Authority(tmp_path / "other").sign("scheduler")) as address:
        assert await status(tmp_path / "e", address, own) == 503
