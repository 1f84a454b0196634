"""Certificates on a real wire: who is heard on TCP, who is refused, and that nobody hangs."""

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from chassis import server, tls
from chassis.channel import open_channel
from chassis.tls import NAME, Identity, TlsFiles
from cohabit.models.v1 import models_pb2_grpc as rpc
from tests.server_kit import Fixture, revoke, serving
from tests.tls_kit import certify, misnamed

DEADLINE_S = 5.0


@pytest.fixture
def own(tmp_path: Path) -> Iterator[TlsFiles]:
    files = certify(tmp_path / "house")
    tls.adopt(files)
    yield files
    tls.adopt(None)


async def heard(channel: grpc.aio.Channel) -> grpc.StatusCode:
    """How a call on the channel ends; well within its deadline."""
    stub: rpc.EngineServiceAsyncStub = rpc.EngineServiceStub(channel)
    async with channel, asyncio.timeout(DEADLINE_S):
        try:
            await stub.RevokePermit(revoke("p"), timeout=2 * DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def channel_of(wire: Fixture, pem: tls.Pem, *, shows: bool = True) -> grpc.aio.Channel:
    """A client of another kind than the house's own."""
    credentials = grpc.ssl_channel_credentials(
        pem.ca, pem.key if shows else None, pem.certificate if shows else None
    )
    named = (("grpc.ssl_target_name_override", NAME),)
    return grpc.aio.secure_channel(wire.target, credentials, options=named)


async def test_a_service_of_the_house_is_heard_over_tcp(own: TlsFiles) -> None:
    async with serving("127.0.0.1:0") as wire:
        assert await heard(open_channel(wire.target)) is grpc.StatusCode.OK
        assert await heard(channel_of(wire, Identity(own).pem())) is grpc.StatusCode.OK


async def test_nobody_else_is_heard_and_the_server_goes_on(own: TlsFiles, tmp_path: Path) -> None:
    mine, foreign = Identity(own).pem(), Identity(certify(tmp_path / "elsewhere")).pem()
    async with serving("127.0.0.1:0") as wire:
        strangers = {
            "plain": grpc.aio.insecure_channel(wire.target),
            "without a certificate": channel_of(wire, mine, shows=False),
            "by another authority": channel_of(wire, replace(foreign, ca=mine.ca)),
            "who believes another": channel_of(wire, foreign),
        }
        for who, channel in strangers.items():
            assert await heard(channel) is grpc.StatusCode.UNAVAILABLE, who
        assert wire.toy.begun == 0
        assert await heard(open_channel(wire.target)) is grpc.StatusCode.OK


async def test_noise_and_silence_at_the_port_cost_nobody_anything(own: TlsFiles) -> None:
    async with serving("127.0.0.1:0") as wire:
        host, _, port = wire.target.rpartition(":")
        _, silent = await asyncio.open_connection(host, int(port))
        reader, loud = await asyncio.open_connection(host, int(port))
        loud.write(b"GET / HTTP/1.1\r\n\r\n" * 100)
        async with asyncio.timeout(DEADLINE_S):
            await reader.read()  # to its end: hung up on
        assert await heard(open_channel(wire.target)) is grpc.StatusCode.OK
        for writer in (silent, loud):
            writer.close()


async def test_a_server_of_another_name_is_not_believed(own: TlsFiles) -> None:
    wrong = misnamed(own.ca.parent)
    pem = tls.Pem(own.ca.read_bytes(), wrong.certificate.read_bytes(), wrong.key.read_bytes())
    server = grpc.aio.server()
    credentials = grpc.ssl_server_credentials([(pem.key, pem.certificate)], pem.ca, True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        code = await heard(open_channel(f"127.0.0.1:{port}"))
    finally:
        await server.stop(0)
    assert code is grpc.StatusCode.UNAVAILABLE


async def test_a_server_without_a_certificate_is_not_believed(own: TlsFiles) -> None:
    tls.adopt(None)
    async with serving("127.0.0.1:0") as wire:
        tls.adopt(own)
        assert await heard(open_channel(wire.target)) is grpc.StatusCode.UNAVAILABLE


async def test_unix_sockets_stay_plain(own: TlsFiles, tmp_path: Path) -> None:
    async with serving(f"unix:{tmp_path}/plain.sock") as wire:
        assert await heard(grpc.aio.insecure_channel(wire.target)) is grpc.StatusCode.OK


async def test_new_certificates_are_shown_without_a_restart(own: TlsFiles, tmp_path: Path) -> None:
    async with serving("127.0.0.1:0") as wire:
        before = Identity(own).pem()
        new = certify(tmp_path / "renewed")
        for old, fresh in (
            (own.certificate, new.certificate),
            (own.key, new.key),
            (own.ca, new.ca),
        ):
            shutil.copy(fresh, old)
        assert await heard(open_channel(wire.target)) is grpc.StatusCode.OK
        assert await heard(channel_of(wire, Identity(new).pem())) is grpc.StatusCode.OK
        assert await heard(channel_of(wire, before)) is grpc.StatusCode.UNAVAILABLE


async def test_a_handshake_that_does_not_end_is_hung_up_on(
    own: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorter = [
        (name, 100 if name == "grpc.server_handshake_timeout_ms" else value)
        for name, value in server._OPTIONS
    ]
    monkeypatch.setattr(server, "_OPTIONS", shorter)
    async with serving("127.0.0.1:0") as wire, asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection(*wire.target.rsplit(":", 1))
        writer.write(b"\x16\x03\x01\x02\x00\x01")  # a record whose rest never comes
        assert await reader.read() == b""
        writer.close()
