"""Spans on their way to a real collector: whose they are, what they may say, and their bounds."""

import asyncio
import logging
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest

from chassis import log, tracing
from chassis.channel import call_metadata
from chassis.config import load
from chassis.errors import Fault, Reason
from chassis.main import _trace as tell_traces
from chassis.tracing_otel import OtelTracer, _Seldom
from tests.collector import Collector, collecting
from tests.server_kit import revoke, serving

REVOKE = "cohabit.models.v1.EngineService/RevokePermit"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
QUIET = TRACEPARENT[:-1] + "0"


@contextmanager
def telling(endpoint: str) -> Iterator[None]:
    tracing.configure("test", endpoint)
    try:
        yield
    finally:
        tracing.close()
        tracing.configure("", "")
        tracing.current.set(tracing.NOTHING)
        log.trace_id.set("")


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as (there, endpoint):
        with telling(endpoint):
            yield there


async def call(name: str, traceparent: str) -> None:
    async with serving("127.0.0.1:0") as wire:
        sent = ((tracing.TRACEPARENT, traceparent),) if traceparent else ()
        with suppress(grpc.aio.AioRpcError):
            await wire.stub.RevokePermit(revoke(name), metadata=sent)


async def test_a_call_is_a_span_if_its_caller_has_one(collector: Collector) -> None:
    await call("p", "")
    await call("p", QUIET)
    await call("p", TRACEPARENT)
    await collector.until(REVOKE)
    (seen,) = collector.spans
    assert seen.trace_id == TRACEPARENT[3:35]
    assert seen.span.parent_span_id.hex() == TRACEPARENT[36:52]
    assert seen.said["rpc.response.status_code"] == "OK"
    assert seen.span.status.code == 0


@pytest.mark.parametrize(
    ("how", "code", "broken"), [("fault", "FAILED_PRECONDITION", 0), ("bug", "INTERNAL", 2)]
)
async def test_how_it_ended_is_told_and_nothing_that_was_said(
    collector: Collector, how: str, code: str, broken: int
) -> None:
    await call(how, TRACEPARENT)
    await collector.until(REVOKE)
    (seen,) = collector.spans
    assert seen.said["rpc.response.status_code"] == code
    assert seen.span.status.code == broken
    assert "secret" not in str(seen.span)


async def test_what_is_called_after_the_end_is_no_part_of_it(collector: Collector) -> None:
    span = tracing.arrive("GET", "")
    ((_, within),) = tracing.carried()
    assert (tracing.TRACEPARENT, within) in call_metadata()
    below = tracing.begin("below")
    assert tracing.carried(below) != tracing.carried()
    below.end()
    span.end()
    assert tracing.carried() == ()
    assert call_metadata() == ()
    assert tracing.begin("long after") is tracing.NOTHING
    await collector.until("GET", "below")
    (above,), (told,) = collector.named("GET"), collector.named("below")
    assert told.span.parent_span_id == above.span.span_id


async def test_an_exception_that_leaves_it_says_how_it_failed(collector: Collector) -> None:
    tracing.arrive("GET", "")
    with pytest.raises(Fault), tracing.begin("refused"):
        raise Fault(Reason.QUEUE_FULL, "Full of secrets.")
    with pytest.raises(asyncio.CancelledError), tracing.begin("left"):
        raise asyncio.CancelledError
    with pytest.raises(ZeroDivisionError), tracing.begin("buggy"):
        raise ZeroDivisionError("secret")
    await collector.until("refused", "left", "buggy")
    told = {seen.name: seen.said["error.type"] for seen in collector.spans}
    assert told == {"refused": "queue_full", "left": "cancelled", "buggy": "error"}
    assert "secret" not in str(collector.spans)


async def test_spans_are_bounded(collector: Collector) -> None:
    span = tracing.arrive("GET", "")
    span.tell({f"key{n}": "x" * 10_000 for n in range(1000)})
    for n in range(1000):
        span.event(f"event{n}")
    span.end()
    await collector.until("GET")
    (seen,) = collector.spans
    assert len(seen.said) == 24
    assert max(map(len, seen.said.values())) == 128
    assert len(seen.events) == 32


def test_where_the_last_spans_were_lost_nobody_waits_for_the_next(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    tracer = OtelTracer("test", f"http://127.0.0.1:{unused_tcp_port}", 1.0, {})
    closed: list[str] = []
    monkeypatch.setattr(tracer._provider, "shutdown", lambda: closed.append("closed"))
    tracer._exporter.failing = True
    tracer.close(5.0)
    assert closed == []
    tracer._exporter.failing = False
    tracer.close(5.0)
    assert closed == ["closed"]


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why traces were not told, as the log is told."""
    said: list[str] = []

    class Heard:
        def warning(self, event: str, why: str) -> None:
            assert event == "traces not told"
            said.append(why)

    monkeypatch.setattr(log, "get", Heard)
    return said


async def test_where_nobody_listens_nothing_waits_and_little_is_said(
    warnings: list[str], unused_tcp_port: int
) -> None:
    with telling(f"http://127.0.0.1:{unused_tcp_port}"):
        began = time.monotonic()
        for _ in range(20_000):
            tracing.arrive("GET", "").end()
        assert time.monotonic() - began < 20
        ended = time.monotonic()
    assert time.monotonic() - ended < 5
    assert len(warnings) == 1


def test_the_library_is_heard_once_in_a_while(
    warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    seldom = _Seldom(60.0)
    for at_s, text in ((1000.0, "first"), (1001.0, "second"), (1059.0, "third"), (1060.0, "last")):
        now_s = at_s
        seldom.emit(logging.LogRecord("x", logging.ERROR, "", 0, "%s", (text,), None))
    assert warnings == ["first", "last"]


def test_a_collector_that_is_silent_does_not_keep_a_process_from_ending() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        program = (
            "from chassis import tracing\n"
            f"tracing.configure('x', 'http://127.0.0.1:{silent.getsockname()[1]}')\n"
            "tracing.arrive('GET', '').end()\n"
            "import time; began = time.monotonic()\n"
            "tracing.close(); print(time.monotonic() - began)\n"
        )
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
        )
        assert 0.4 < float(done.stdout) < 2
        assert time.monotonic() - began < 15


def test_without_the_library_a_collector_that_is_configured_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "chassis.tracing_otel")
    named, silent = tmp_path / "named.yaml", tmp_path / "silent.yaml"
    named.write_text("log_level: info\ntraces:\n  endpoint: http://127.0.0.1:4317\n")
    with pytest.raises(SystemExit) as ended:
        tell_traces("broker", load(named))
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{named}:3: traces.endpoint: traces need the module opentelemetry")
    assert "its extra `traces`" in said
    # What the environment names may be meant for others.
    silent.write_text("log_level: info\n")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    tell_traces("broker", load(silent))
    assert not tracing.is_on()


def test_nothing_is_imported_where_no_collector_is_configured(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "import edge.app, chassis.main, hosting.premises, services.llm.engine_servicer\n"
        "from chassis import tracing\n"
        "tracing.configure('x', '')\n"
        "assert tracing.arrive('GET', '') is tracing.NOTHING\n"
        "assert tracing.begin('x') is tracing.NOTHING and tracing.carried() == ()\n"
        "heavy = ('opentelemetry.sdk', 'opentelemetry.exporter', 'chassis.tracing_otel')\n"
        "print([name for name in sys.modules if name.startswith(heavy)])\n"
    )
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
