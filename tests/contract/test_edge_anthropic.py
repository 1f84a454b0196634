"""Anthropic's dialect over real HTTP: its official client, unmodified, against scripted peers."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anthropic
import pydantic
import pytest

from chassis.errors import Reason
from cohabit.llm.v1 import llm_pb2
from cohabit.models.v1 import models_pb2
from tests.anthropic_kit import called, client_of, ended, says
from tests.edge_kit import MODEL, House, finish, opened, text

ASK: Any = {
    "model": MODEL,
    "max_tokens": 50,
    "messages": [{"role": "user", "content": "Hello"}],
}
TOOL: Any = {
    "name": "weather",
    "description": "Says it.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path) as house:
        house.peers.models[0].service = "llm"
        yield house


@pytest.fixture
async def client(house: House) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with client_of(house) as client:
        yield client


# Messages.


async def test_a_message(house: House, client: anthropic.AsyncAnthropic) -> None:
    answer = await client.messages.create(**ASK, system="Be kind.", extra_body={"top_k": 3})
    (block,) = answer.content
    assert (block.type, block.text) == ("text", "Hello")
    assert (answer.role, answer.model, answer.stop_reason) == ("assistant", "smol-a", "end_turn")
    assert answer.id.startswith("msg_")
    usage = answer.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (4, 3, 2)
    (sent,) = house.peers.generates
    assert [m.role for m in sent.conversation.messages] == [
        llm_pb2.ROLE_SYSTEM,
        llm_pb2.ROLE_USER,
    ]
    assert (sent.max_tokens, sent.sampling.top_k) == (50, 3)


async def test_a_stream(client: anthropic.AsyncAnthropic) -> None:
    async with client.messages.stream(**ASK) as stream:
        said = [piece async for piece in stream.text_stream]
        answer = await stream.get_final_message()
    assert said == ["Hel", "lo"]
    assert answer.content[0].type == "text"
    assert answer.content[0].text == "Hello"
    assert answer.stop_reason == "end_turn"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (4, 2)
    assert answer.usage.cache_read_input_tokens == 3
    assert stream.request_id


async def test_the_events_come_in_order(client: anthropic.AsyncAnthropic) -> None:
    stream = await client.messages.create(**ASK, stream=True)
    assert [event.type async for event in stream] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


async def test_tools_through_the_streaming_helper(
    house: House, client: anthropic.AsyncAnthropic
) -> None:
    house.peers.generate = says(
        text("Let me look."),
        *called(0, "weather", '{"city": "Gh', 'ent"}'),
        *called(1, "time"),
        ended(llm_pb2.FINISH_REASON_TOOL_CALLS),
    )
    async with client.messages.stream(**ASK, tools=[TOOL]) as stream:
        inputs = [event.partial_json async for event in stream if event.type == "input_json"]
        answer = await stream.get_final_message()
    assert "".join(inputs) == '{"city": "Ghent"}'
    assert answer.stop_reason == "tool_use"
    _, first, second = answer.content
    assert first.type == second.type == "tool_use"
    assert (first.id, first.name, first.input) == ("t0", "weather", {"city": "Ghent"})
    assert (second.id, second.input) == ("t1", {})


async def test_an_answer_goes_back_with_its_results(
    house: House, client: anthropic.AsyncAnthropic
) -> None:
    house.peers.generate = says(
        llm_pb2.GenerateResponse(reasoning="Rain?"),
        *called(0, "weather", "{}"),
        ended(llm_pb2.FINISH_REASON_TOOL_CALLS),
    )
    first = await client.messages.create(**ASK, tools=[TOOL])
    thought, call = first.content
    assert (thought.type, call.type) == ("thinking", "tool_use")
    result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": "Rain"}
    turns = [*ASK["messages"], first.to_param(), {"role": "user", "content": [result]}]
    house.peers.generate = house.peers.says_hello
    await client.messages.create(**{**ASK, "messages": turns}, tools=[TOOL])
    _, assistant, tool = house.peers.generates[1].conversation.messages
    assert (assistant.reasoning, assistant.tool_calls[0].name) == ("Rain?", "weather")
    assert (tool.role, tool.tool_call_id, tool.content[0].text) == (
        llm_pb2.ROLE_TOOL,
        "t0",
        "Rain",
    )


async def test_one_call_only(house: House, client: anthropic.AsyncAnthropic) -> None:
    house.peers.generate = says(
        *called(0, "weather", "{}"),
        *called(1, "weather", "{}"),
        ended(llm_pb2.FINISH_REASON_TOOL_CALLS),
    )
    answer = await client.messages.create(
        **ASK, tools=[TOOL], tool_choice={"type": "any", "disable_parallel_tool_use": True}
    )
    assert len(answer.content) == 1
    assert (
        house.peers.generates[0].conversation.tool_choice.mode == llm_pb2.ToolChoice.MODE_REQUIRED
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_thinking(house: House, client: anthropic.AsyncAnthropic, stream: bool) -> None:
    house.peers.generate = says(
        llm_pb2.GenerateResponse(reasoning="Hm"),
        llm_pb2.GenerateResponse(reasoning="."),
        text("A"),
        finish(),
    )
    wish: Any = {**ASK, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    if stream:
        async with client.messages.stream(**wish) as events:
            answer: Any = await events.get_final_message()
    else:
        answer = await client.messages.create(**wish)
    thought, said = answer.content
    assert (thought.type, thought.thinking, bool(thought.signature)) == ("thinking", "Hm.", True)
    assert said.text == "A"
    assert house.peers.generates[0].thinking == llm_pb2.THINKING_ENABLED


@pytest.mark.parametrize("stream", [False, True])
async def test_stop_sequences(house: House, client: anthropic.AsyncAnthropic, stream: bool) -> None:
    house.peers.generate = says(text("A"), ended(llm_pb2.FINISH_REASON_STOP, "END"))
    wish: Any = {**ASK, "stop_sequences": ["END"]}
    if stream:
        async with client.messages.stream(**wish) as events:
            answer: Any = await events.get_final_message()
    else:
        answer = await client.messages.create(**wish)
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "END")
    assert list(house.peers.generates[0].stop) == ["END"]


async def test_parse_with_a_pydantic_model(house: House, client: anthropic.AsyncAnthropic) -> None:
    class Town(pydantic.BaseModel):
        name: str

    house.peers.generate = says(text('{"name": "Ghent"}'), finish())
    answer = await client.messages.parse(**ASK, output_format=Town)
    assert answer.parsed_output == Town(name="Ghent")
    schema = json.loads(house.peers.generates[0].output.json_schema)
    assert schema["properties"]["name"]["type"] == "string"


# Tokens and models.


async def test_count_tokens(house: House, client: anthropic.AsyncAnthropic) -> None:
    told = await client.messages.count_tokens(
        model=MODEL, messages=ASK["messages"], system="Be kind.", tools=[TOOL]
    )
    assert told.input_tokens == 42
    (asked,) = house.peers.counts
    assert (asked.model, asked.conversation.tools[0].name) == (MODEL, "weather")
    assert len(asked.conversation.messages) == 2
    assert house.peers.admits == []


async def test_counting_asks_the_twin_that_takes_most(
    house: House, client: anthropic.AsyncAnthropic
) -> None:
    house.peers.models = [
        models_pb2.Model(
            key=key,
            family="twins",
            service="llm",
            capabilities=models_pb2.Capabilities(context_tokens=tokens),
        )
        for key, tokens in (("small", 1), ("large", 2))
    ]
    await client.messages.count_tokens(model="twins", messages=ASK["messages"])
    assert house.peers.counts[0].model == "large"


async def test_counting_for_whom_nobody_knows(
    house: House, client: anthropic.AsyncAnthropic
) -> None:
    house.peers.models[0].kind = models_pb2.MODEL_KIND_EMBEDDING
    with pytest.raises(anthropic.NotFoundError) as caught:
        await client.messages.count_tokens(model="x", messages=ASK["messages"])
    assert caught.value.error_code == Reason.MODEL_NOT_FOUND
    with pytest.raises(anthropic.BadRequestError):
        await client.messages.count_tokens(model=MODEL, messages=ASK["messages"])
    await house.scheduler_server.stop()
    with pytest.raises(anthropic.InternalServerError) as away:
        await client.messages.count_tokens(model="y", messages=ASK["messages"])
    assert away.value.status_code == 503


async def test_counting_where_the_service_is_not_known(house: House) -> None:
    house.peers.models[0].service = "elsewhere"
    answer = await house.http.post(
        "/v1/messages/count_tokens", json={"model": MODEL, "messages": ASK["messages"]}
    )
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


async def test_counting_waits_at_the_same_door(tmp_path: Path) -> None:
    async with opened(tmp_path, max_open_requests=1) as house:
        house.peers.admit = house.peers.queues
        waiting = asyncio.create_task(house.http.post("/v1/messages", json=ASK))
        await house.peers.seen("admit")
        answer = await house.http.post("/v1/messages/count_tokens", json={})
        assert answer.status_code == 503
        waiting.cancel()
        await house.peers.seen("admit over")


async def test_models(house: House, client: anthropic.AsyncAnthropic) -> None:
    house.peers.models = [
        models_pb2.Model(key=key, created_unix_ms=1_700_000_000_123) for key in ("c", "a/x", "b")
    ]
    first = await client.models.list(limit=2)
    assert [model.id for model in first.data] == ["a/x", "b"]
    assert first.has_more
    assert [model.id async for model in client.models.list(limit=2)] == ["a/x", "b", "c"]
    before = await client.models.list(before_id="c", limit=1)
    assert [model.id for model in before.data] == ["b"]
    assert (await client.models.list(lifecycle=["retired"])).data == []
    one = await client.models.retrieve("a/x")
    assert (one.type, one.id, one.display_name, one.lifecycle) == ("model", "a/x", "a/x", "active")
    assert one.created_at == datetime.fromtimestamp(1_700_000_000, UTC)
    with pytest.raises(anthropic.NotFoundError) as caught:
        await client.models.retrieve("x")
    assert caught.value.type == "not_found_error"


async def test_the_document_shows_the_dialect(house: House) -> None:
    document: Any = (await house.http.get("/openapi.json")).json()
    messages = document["paths"]["/v1/messages"]["post"]
    assert messages["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith(
        "/MessagesBody"
    )
    assert set(messages["responses"]["200"]["content"]) == {
        "application/json",
        "text/event-stream",
    }
    schemas = document["components"]["schemas"]
    refusal = messages["responses"]["429"]["content"]["application/json"]["schema"]["$ref"]
    assert set(schemas[refusal.rpartition("/")[2]]["properties"]) == {
        "type",
        "error",
        "request_id",
    }
    assert {"temperature", "tools", "system"} <= set(schemas["MessagesBody"]["properties"])
    assert "max_tokens" not in schemas["CountTokensBody"]["properties"]
    assert schemas["ToolUseBlockParam"]["properties"]["input"]["type"] == "object"
    listed = document["paths"]["/v1/models"]["get"]["parameters"]
    assert {"limit", "after_id", "before_id"} <= {parameter["name"] for parameter in listed}
