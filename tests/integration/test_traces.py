"""Traces of a whole house, told to a real collector: from the HTTP request to the engine."""

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.collector import Collector, Seen, collecting
from tests.integration.house import House, free_port, running, until

SECRET = "Sesame-4711"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
GENERATE = "cohabit.llm.v1.LanguageModelService/Generate"
ADMIT = "cohabit.scheduler.v1.SchedulerService/Admit"
CHAT = "POST /v1/chat/completions"
BODY: Any = {
    "model": "tiny",
    "messages": [{"role": "user", "content": SECRET}],
    "max_tokens": 5,
    "ignore_eos": True,
}


async def ask(house: House, traceparent: str = "", **changes: Any) -> httpx.Response:
    headers = {
        "authorization": f"Bearer {SECRET}",
        "x-request-id": SECRET,
        "tracestate": f"a={SECRET}",
    }
    if traceparent:
        headers["traceparent"] = traceparent
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        return await http.post(
            f"{house.url}/v1/chat/completions?key={SECRET}",
            json={**BODY, **changes},
            headers=headers,
        )


def lineage(collector: Collector, seen: Seen) -> list[str]:
    """Its name, and those of all above it."""
    names = [seen.name]
    while (above := collector.parent(seen)) is not None:
        names.append(above.name)
        seen = above
    return names


async def test_one_request_is_one_trace_to_the_engine(tmp_path: Path) -> None:
    async with collecting() as (collector, endpoint):
        with running(tmp_path, traces={"endpoint": endpoint}) as house:
            answer = await ask(house, f"00-{TRACE}-{PARENT}-01")
            assert answer.status_code == 200, answer.text
            failed = await ask(house, f"00-{TRACE}-{PARENT}-01", model="nobody")
            assert failed.status_code == 404
            await collector.until(CHAT, "admission", GENERATE, ADMIT)
            await until(_async(lambda: len(collector.named(CHAT)) == 2), what="both requests")
        lines = lines_of(house)
    assert {seen.trace_id for seen in collector.spans} == {TRACE}
    first, second = sorted(collector.named(CHAT), key=lambda seen: seen.span.start_time_unix_nano)
    (engine,) = collector.named(GENERATE)
    admission, *_ = (one for one in collector.named("admission") if "granted" in one.events)
    (admitted,) = (one for one in collector.named(ADMIT) if collector.parent(one) is admission)
    assert first.span.parent_span_id.hex() == PARENT
    assert lineage(collector, engine) == [GENERATE, CHAT]
    assert lineage(collector, admitted) == [ADMIT, "admission", CHAT]
    assert [seen.service for seen in (first, admitted, engine)] == ["edge", "scheduler", "engine"]
    assert engine.process["cohabit.model"] == "tiny"

    assert admission.events[-1] == "granted"
    assert "loading" in admission.events
    assert admission.said["cohabit.model"] == "tiny"
    assert first.said["http.route"] == "/v1/chat/completions"
    assert first.said["http.response.status_code"] == 200
    assert first.said["cohabit.outcome"] == "ok"
    assert second.said["cohabit.outcome"] == "model_not_found"
    assert second.span.status.code == 0  # a caller's mistake
    assert engine.said["gen_ai.usage.output_tokens"] == 5
    assert engine.said["gen_ai.usage.input_tokens"] > 0
    assert engine.said["cohabit.prefill_ms"] > 0
    assert engine.said["cohabit.decode_ms"] >= 0

    everything = " ".join(str(seen.process) + str(seen.span) for seen in collector.spans)
    assert SECRET not in everything
    assert max(len(seen.said) for seen in collector.spans) <= 24
    traced = [line for line in lines if line.get("trace_id") == TRACE]
    assert [line["event"] for line in traced].count("request") == 2


async def test_who_does_not_tell_is_not_told_and_goes_on(tmp_path: Path) -> None:
    async with collecting() as (collector, endpoint):
        traces = {"endpoint": endpoint, "sample": 0}
        with running(tmp_path, traces=traces, edge={"workers": 2}) as house:
            quiet = await ask(house, f"00-{TRACE}-{PARENT}-00")
            own = await ask(house)
            told = await ask(house, f"00-{'1' * 32}-{PARENT}-01")
            assert [answer.status_code for answer in (quiet, own, told)] == [200, 200, 200]
            await collector.until(CHAT, GENERATE, ADMIT)
        log = house.log.read_text()
    assert {seen.trace_id for seen in collector.spans} == {"1" * 32}
    assert TRACE in log  # known to the lines all the same


async def test_a_collector_that_is_away_costs_nothing_and_is_found_later(tmp_path: Path) -> None:
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with running(tmp_path, traces={"endpoint": endpoint}) as house:
        assert (await ask(house)).status_code == 200  # the model is there
        began = time.monotonic()
        for _ in range(5):
            assert (await ask(house)).status_code == 200
        assert time.monotonic() - began < 10
        await until(_async(lambda: "traces not told" in house.log.read_text()), 20, "a line")
        async with collecting(port) as (collector, _):
            asked = time.monotonic()
            while not collector.named(CHAT):  # the library tries again in seconds
                assert time.monotonic() - asked < 30
                assert (await ask(house)).status_code == 200
        lines = [line for line in lines_of(house) if line["event"] == "traces not told"]
    by_service = [(line["service"], line.get("instance")) for line in lines]
    assert len(by_service) == len(set(by_service)), by_service  # once a minute, and no more


@pytest.mark.parametrize("traceparent", ["", "00-x", f"ff-{TRACE}-{PARENT}-01", "00-" + "0" * 52])
async def test_nonsense_begins_a_trace_of_its_own(tmp_path: Path, traceparent: str) -> None:
    async with collecting() as (collector, endpoint):
        with running(tmp_path, traces={"endpoint": endpoint}) as house:
            assert (await ask(house, traceparent)).status_code == 200
            async with httpx.AsyncClient(trust_env=False) as http:
                for probe in ("/health", "/errors"):
                    assert (await http.get(f"{house.url}{probe}")).status_code == 200
            await collector.until(CHAT, GENERATE)
    (seen,) = collector.named(CHAT)
    assert seen.span.parent_span_id == b""
    assert seen.trace_id not in {TRACE, "0" * 32}
    assert not [one for one in collector.spans if "health" in one.name or "errors" in one.name]


def lines_of(house: House) -> list[dict[str, Any]]:
    """The log, without the launcher's names before each line."""
    texts = (line.partition(" | ")[2] for line in house.log.read_text().splitlines())
    return [json.loads(text) for text in texts if text.startswith("{")]


def _async(true: Any) -> Any:
    async def asked() -> bool:
        return bool(true())

    return asked
