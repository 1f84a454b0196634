"""The server bootstrap and the channel over a real wire: statuses, ids, health, limits."""

import asyncio
import collections
import gc
import signal
import socket
import sys
import time
import weakref
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from chassis import server as bootstrap
from chassis.channel import REQUEST_ID, open_channel
from chassis.errors import Fault, Reason
from chassis.process import child_env
from chassis.server import CannotListen, Server
from chassis.status import fault_of
from cohabit.models.v1 import models_pb2 as pb
from cohabit.models.v1 import models_pb2_grpc as rpc
from tests.server_kit import NAME, Fixture, Toy, revoke, serving

DEADLINE_S = 20.0
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["unix", "tcp"])
async def wire(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fixture]:
    listen = f"unix:{tmp_path}/new/s.sock" if request.param == "unix" else "127.0.0.1:0"
    async with serving(listen) as fixture:
        yield fixture


async def refusal(call: Awaitable[Any]) -> tuple[grpc.aio.AioRpcError, Fault]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value, fault_of(caught.value, "toy")


async def read_all(call: Any) -> None:
    async for _ in call:
        pass


@pytest.mark.parametrize("streaming", [False, True], ids=["unary", "stream"])
async def test_a_fault_crosses_the_wire_whole(wire: Fixture, streaming: bool) -> None:
    call: Awaitable[Any] = wire.stub.RevokePermit(revoke("fault"))
    if streaming:
        watch = wire.stub.WatchEngine(pb.WatchEngineRequest(), metadata=(("do", "fault"),))
        call = read_all(watch)
    error, fault = await refusal(call)
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error.details() == "Busy; wait."
    assert (fault.reason, fault.message) == (Reason.MODEL_BUSY, "Busy; wait.")
    assert (fault.retry_after_s, fault.metadata) == (1.234, {"place": "3"})


@pytest.mark.parametrize("streaming", [False, True], ids=["unary", "stream"])
async def test_a_bug_tells_the_client_nothing(wire: Fixture, streaming: bool) -> None:
    call: Awaitable[Any] = wire.stub.RevokePermit(revoke("bug"))
    if streaming:
        watch = wire.stub.WatchEngine(pb.WatchEngineRequest(), metadata=(("do", "bug"),))
        call = read_all(watch)
    error, fault = await refusal(call)
    assert error.code() is grpc.StatusCode.INTERNAL
    assert fault.reason is Reason.INTERNAL
    told = f"{error.details()} {error.trailing_metadata()}"
    assert "its log says what" in told
    assert not any(word in told for word in ("secret", "ZeroDivision", "Traceback", ".py"))


async def test_a_sentence_of_any_length_arrives(wire: Fixture) -> None:
    _, fault = await refusal(wire.stub.RevokePermit(revoke("long")))
    assert fault.reason is Reason.INVALID_REQUEST
    assert fault.message.startswith("No 'üü")
    assert fault.message.endswith("…")


async def test_request_ids_come_in_and_go_out(wire: Fixture) -> None:
    call = wire.stub.RevokePermit(revoke(""), metadata=((REQUEST_ID, "given-7"),))
    await call
    assert (REQUEST_ID, "given-7") in tuple(await call.trailing_metadata())
    assert wire.toy.request_ids == ["given-7"]

    made = wire.stub.RevokePermit(revoke(""))
    await made
    assert wire.toy.request_ids[1]
    assert (REQUEST_ID, wire.toy.request_ids[1]) in tuple(await made.trailing_metadata())

    error, _ = await refusal(
        wire.stub.RevokePermit(revoke("fault"), metadata=((REQUEST_ID, "x" * 500),))
    )
    assert (REQUEST_ID, "x" * 128) in tuple(error.trailing_metadata())


async def test_reflection_lists_the_services(wire: Fixture) -> None:
    channel: Any = wire.channel  # its published types know the synchronous channel alone
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    call = stub.ServerReflectionInfo(iter([request]))
    answer = await call.read()
    names = {service.name for service in answer.list_services_response.service}
    assert {NAME, "grpc.health.v1.Health"} <= names


async def test_health_from_start_to_drain(wire: Fixture) -> None:
    status = health_pb2.HealthCheckResponse
    assert await wire.health() == status.NOT_SERVING
    await wire.server.set_serving(True)
    assert await wire.health() == status.SERVING
    stub: Any = health_pb2_grpc.HealthStub(wire.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=NAME))
    assert (await watch.read()).status == status.SERVING
    stopping = asyncio.create_task(wire.server.stop())
    assert (await watch.read()).status == status.NOT_SERVING
    await stopping


@pytest.mark.parametrize("at_once", [True, False])
async def test_health_may_wait_for_what_the_service_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    up, end = asyncio.Event(), asyncio.Event()

    async def until_signal() -> None:
        up.set()
        await end.wait()

    monkeypatch.setattr(bootstrap, "until_signal", until_signal)
    server, toy, target = Server([NAME], drain_s=0.2), Toy(), f"unix:{tmp_path}/s.sock"
    rpc.add_EngineServiceServicer_to_server(toy, server.grpc)
    running = asyncio.create_task(bootstrap.run(server, target, serving_at_once=at_once))
    await asyncio.wait_for(up.wait(), DEADLINE_S)
    async with open_channel(target) as channel:
        wire = Fixture(server, toy, target, channel, rpc.EngineServiceStub(channel))
        status = health_pb2.HealthCheckResponse
        assert await wire.health() == (status.SERVING if at_once else status.NOT_SERVING)
        await server.set_serving(True)
        assert await wire.health() == status.SERVING
    end.set()
    await asyncio.wait_for(running, DEADLINE_S)


async def test_stopping_lets_a_stream_finish_and_refuses_new_calls(tmp_path: Path) -> None:
    async with serving(f"unix:{tmp_path}/s.sock", drain_s=DEADLINE_S) as wire:
        call = wire.stub.WatchEngine(pb.WatchEngineRequest())
        assert await call.read() is not grpc.aio.EOF
        closed = asyncio.Event()
        wire.server.closing.callback(closed.set)
        began = time.perf_counter()
        stopping = asyncio.create_task(wire.server.stop())
        async with open_channel(wire.target) as fresh:
            stub: rpc.EngineServiceAsyncStub = rpc.EngineServiceStub(fresh)
            error, _ = await refusal(stub.RevokePermit(revoke(""), timeout=DEADLINE_S))
            assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert not closed.is_set()
        wire.toy.go.set()
        last = await call.read()
        assert isinstance(last, pb.WatchEngineResponse)
        assert last.load_progress == 1.0
        assert await call.read() is grpc.aio.EOF
        await stopping
        assert closed.is_set()
        assert time.perf_counter() - began < DEADLINE_S / 2


async def test_what_has_to_be_finished_first_is_while_calls_are_answered(tmp_path: Path) -> None:
    async with serving(f"unix:{tmp_path}/s.sock") as wire:
        await wire.server.set_serving(True)
        begun, finished, left = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def finish() -> None:
            begun.set()
            await finished.wait()

        wire.server.finishing.append(finish)
        wire.server.leaving.append(left.set)
        stopping = asyncio.create_task(wire.server.stop())
        await asyncio.wait_for(begun.wait(), DEADLINE_S)
        assert await wire.health() == health_pb2.HealthCheckResponse.NOT_SERVING
        assert (await wire.stub.RevokePermit(revoke("any"), timeout=DEADLINE_S)).running
        assert not left.is_set()
        finished.set()
        await asyncio.wait_for(stopping, DEADLINE_S)
        assert left.is_set()


async def test_what_cannot_be_finished_keeps_nothing_from_being_closed(tmp_path: Path) -> None:
    closed: list[str] = []

    async def finish() -> None:
        raise ZeroDivisionError

    async with serving(f"unix:{tmp_path}/s.sock", drain_s=0.1) as wire:
        wire.server.finishing.append(finish)
        wire.server.closing.callback(closed.append, "leases")
        await asyncio.wait_for(wire.server.stop(), DEADLINE_S)
        assert closed == ["leases"]


async def test_a_stream_that_does_not_finish_is_cut_off(tmp_path: Path) -> None:
    async with serving(f"unix:{tmp_path}/s.sock", drain_s=0.1) as wire:
        call = wire.stub.WatchEngine(pb.WatchEngineRequest())
        assert await call.read() is not grpc.aio.EOF
        await asyncio.wait_for(wire.server.stop(), 5)
        _, fault = await refusal(call.read())
        assert fault.reason is Reason.SERVICE_UNAVAILABLE
        await asyncio.wait_for(wire.toy.ended.wait(), 5)


async def test_a_message_of_90_mib_passes_and_one_of_100_is_refused(tmp_path: Path) -> None:
    async with serving(f"unix:{tmp_path}/s.sock") as wire:
        await wire.stub.RevokePermit(revoke("x" * (90 << 20)))
        _, fault = await refusal(wire.stub.RevokePermit(revoke("x" * (100 << 20))))
        assert fault.reason is Reason.PAYLOAD_TOO_LARGE


async def test_5000_calls_wait_at_once(tmp_path: Path) -> None:
    async with serving(f"unix:{tmp_path}/s.sock") as wire:
        calls = [wire.stub.RevokePermit(revoke("wait"), timeout=60) for _ in range(5000)]
        async with asyncio.timeout(60):
            while wire.toy.begun < 5000 and not any(c.done() for c in calls):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert wire.toy.begun == 5000
            wire.toy.go.set()
            codes = collections.Counter([await call.code() for call in calls])
        assert codes == {grpc.StatusCode.OK: 5000}


async def test_a_client_that_leaves_ends_its_handler_at_once(wire: Fixture) -> None:
    worst_s = 0.0
    for _ in range(5):
        wire.toy.ended.clear()
        call = wire.stub.WatchEngine(pb.WatchEngineRequest())
        assert await call.read() is not grpc.aio.EOF
        began = time.perf_counter()
        call.cancel()
        await asyncio.wait_for(wire.toy.ended.wait(), 5)
        worst_s = max(worst_s, time.perf_counter() - began)
    assert worst_s < 0.1


async def test_a_client_that_leaves_without_reading_ends_its_handler_too(wire: Fixture) -> None:
    call = wire.stub.WatchEngine(pb.WatchEngineRequest(), metadata=(("do", "flood"),))
    assert await call.read() is not grpc.aio.EOF
    stuck, before = 0, -1
    async with asyncio.timeout(DEADLINE_S):
        while stuck < 5:  # flow control: the handler waits for its reader
            await asyncio.sleep(0.02)
            stuck = stuck + 1 if wire.toy.sent == before else 0
            before = wire.toy.sent
    assert not wire.toy.ended.is_set()
    began = time.perf_counter()
    call.cancel()
    await asyncio.wait_for(wire.toy.ended.wait(), 5)
    assert time.perf_counter() - began < 0.1


async def test_a_socket_in_use_is_not_taken_and_a_stale_one_is(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    async with serving(f"unix:{path}") as wire:
        with pytest.raises(CannotListen, match="served by another process"):
            await Server([NAME]).start(f"unix:{path}")
        assert (await wire.stub.RevokePermit(revoke(""))).running
    with socket.socket(socket.AF_UNIX) as stale:  # closed, its file stays
        stale.bind(str(path))
    async with serving(f"unix:{path}") as wire:
        assert (await wire.stub.RevokePermit(revoke(""))).running


@pytest.mark.parametrize("kind", ["file", "link", "folder", "below a file"])
async def test_what_is_no_socket_is_left_alone(tmp_path: Path, kind: str) -> None:
    path, precious = tmp_path / "s.sock", tmp_path / "precious"
    precious.write_text("precious")
    if kind == "file":
        path.write_text("precious")
    elif kind == "link":
        path.symlink_to(precious)
    elif kind == "folder":
        path.mkdir()
    else:
        path = precious / "s.sock"
    with pytest.raises(CannotListen, match=r"s\.sock"):
        await Server([NAME]).start(f"unix:{path}")
    assert precious.read_text() == "precious"
    assert kind == "below a file" or path.exists()


async def test_a_port_in_use_is_said_in_a_sentence() -> None:
    async with serving("127.0.0.1:0") as wire:
        with pytest.raises(CannotListen, match="cannot be listened on"):
            await Server([NAME]).start(wire.target)


CHILD = """
import asyncio, sys
from chassis import log
from chassis.server import Server, run
from tests.server_kit import NAME, Toy, rpc

async def main():
    log.configure("child")
    server = Server([NAME], drain_s=60.0)
    rpc.add_EngineServiceServicer_to_server(Toy(), server.grpc)
    await run(server, sys.argv[1])

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_the_second_signal_exits_at_once(tmp_path: Path, number: signal.Signals) -> None:
    target = f"unix:{tmp_path}/s.sock"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", CHILD, target,
        env=child_env() | {"PYTHONPATH": f"{ROOT}:{ROOT}/gen"}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert child.stderr is not None
        assert b"serving" in await asyncio.wait_for(child.stderr.readline(), DEADLINE_S)
        async with open_channel(target) as channel:
            stub: rpc.EngineServiceAsyncStub = rpc.EngineServiceStub(channel)
            call = stub.WatchEngine(pb.WatchEngineRequest(), wait_for_ready=True)
            assert await call.read() is not grpc.aio.EOF
            child.send_signal(number)
            assert b"stopping" in await asyncio.wait_for(child.stderr.readline(), DEADLINE_S)
            assert child.returncode is None  # it drains, for a minute if need be
            began = time.perf_counter()
            child.send_signal(number)
            assert await asyncio.wait_for(child.wait(), DEADLINE_S) == 128 + number
            assert time.perf_counter() - began < 1.0
            call.cancel()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def test_a_call_that_was_cancelled_is_free_at_once(tmp_path: Path) -> None:
    """No cycle holds what it was made of until the collector comes, which may be much later."""
    held: list[weakref.ref[Any]] = []

    class Kept(Toy):
        async def WatchEngine(self, request: Any, context: Any) -> AsyncIterator[Any]:
            task = asyncio.current_task()
            assert task is not None
            held.append(weakref.ref(task))
            async for event in super().WatchEngine(request, context):
                yield event

    server, toy = Server([NAME], drain_s=0.2), Kept()
    rpc.add_EngineServiceServicer_to_server(toy, server.grpc)
    target = await server.start(f"unix:{tmp_path}/s.sock")
    gc.collect()
    gc.disable()
    try:
        async with open_channel(target) as channel:
            call = rpc.EngineServiceStub(channel).WatchEngine(pb.WatchEngineRequest())
            await call.read()
            call.cancel()
            async with asyncio.timeout(DEADLINE_S):
                while held[0]() is not None:  # noqa: ASYNC110  nobody tells when the last has let go
                    await asyncio.sleep(0.001)
    finally:
        gc.enable()
        await server.stop()
