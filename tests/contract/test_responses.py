"""The Responses dialect over real HTTP, with the official client, against scripted gRPC peers."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from tests.edge_kit import DEADLINE_S, MODEL, House, finish, opened, text

ASK: Any = {"model": MODEL, "input": "Hello"}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path) as house:
        yield house


class City(BaseModel):
    city: str


def called(arguments: str, name: str = "", call_id: str = "") -> pb.GenerateResponse:
    delta = pb.ToolCallDelta(index=0, id=call_id, name=name, arguments_json=arguments)
    return pb.GenerateResponse(tool_calls=[delta])


def says(house: House, *messages: pb.GenerateResponse) -> None:
    async def script(_request: Any, _context: Any) -> AsyncIterator[Any]:
        for message in messages:
            yield message

    house.peers.generate = script


async def thinks_and_calls(_request: Any, _context: Any) -> AsyncIterator[Any]:
    yield pb.GenerateResponse(reasoning="Hm.")
    yield text("Look: ")
    yield called('{"ci', "City", "call_1")
    yield called('ty":"Delft"}')
    yield pb.GenerateResponse(finish=pb.Finish(reason=pb.FINISH_REASON_TOOL_CALLS))


async def breaks(_request: Any, _context: Any) -> AsyncIterator[Any]:
    yield text("Hel")
    raise Fault(Reason.ENGINE_CRASHED, "The engine died.")


async def drain(stream: Any, seen: list[Any]) -> None:
    async for event in stream:
        seen.append(event)  # noqa: PERF401 - what came before a failure is kept


def roles(house: House) -> list[tuple[int, str]]:
    """The turns that the engine was asked to answer last."""
    turns = house.peers.generates[-1].conversation.messages
    return [(turn.role, turn.content[0].text) for turn in turns]


# The official client, unmodified.


async def test_a_response_is_made_and_found_again(house: House) -> None:
    made = await house.openai.responses.create(**ASK, metadata={"k": "v"}, max_output_tokens=5)
    assert (made.output_text, made.status, made.model) == ("Hello", "completed", "smol-a")
    assert made.usage is not None
    assert made.usage.input_tokens_details.cached_tokens == 3
    assert made.to_dict()["metrics"]["queue_wait_ms"] == 7
    Response.model_validate(made.to_dict())
    found = await house.openai.responses.retrieve(made.id)
    assert found.to_dict() == made.to_dict()
    (sent,) = house.peers.generates
    assert (sent.model, sent.max_tokens) == ("smol-a", 5)
    # Unguessable, and of the length that clients know.
    assert len(made.id.removeprefix("resp_")) == 48


async def test_the_streaming_helper_follows_text(house: House) -> None:
    async with house.openai.responses.stream(**ASK) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    snapshots = [e.snapshot for e in events if e.type == "response.output_text.delta"]
    assert snapshots == ["Hel", "Hello"]
    assert final.output_text == "Hello"
    assert (await house.openai.responses.retrieve(final.id)).output_text == "Hello"


async def test_the_streaming_helper_follows_thoughts_and_tools(house: House) -> None:
    house.peers.generate = thinks_and_calls
    helper: Any = openai.pydantic_function_tool(City)
    async with house.openai.responses.stream(**ASK, tools=[helper]) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    thought, said, call = final.output
    assert thought.type == "reasoning"
    assert thought.content is not None
    assert (thought.content[0].text, said.type) == ("Hm.", "message")
    assert call.type == "function_call"
    assert (call.call_id, call.parsed_arguments) == ("call_1", City(city="Delft"))
    snapshots = [e.snapshot for e in events if e.type == "response.function_call_arguments.delta"]
    assert snapshots == ['{"ci', '{"city":"Delft"}']
    (sent,) = house.peers.generates[-1].conversation.tools
    assert json.loads(sent.parameters_json)["properties"]["city"]["type"] == "string"


async def test_an_answer_is_parsed_into_a_model(house: House) -> None:
    says(house, finish('{"city":"Delft"}'))
    made = await house.openai.responses.parse(**ASK, text_format=City)
    assert made.output_parsed == City(city="Delft")
    schema = json.loads(house.peers.generates[-1].output.json_schema)
    assert schema["required"] == ["city"]
    async with house.openai.responses.stream(**ASK, text_format=City) as stream:
        assert (await stream.get_final_response()).output_parsed == City(city="Delft")


async def test_tools_round_and_round(house: House) -> None:
    house.peers.generate = thinks_and_calls
    first = await house.openai.responses.create(**ASK)
    call = first.output[-1]
    assert call.type == "function_call"
    house.peers.generate = house.peers.says_hello
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    # By reference, and by passing everything back as the client has it.
    await house.openai.responses.create(model=MODEL, previous_response_id=first.id, input=[output])
    by_reference = house.peers.generates[-1].conversation
    history: Any = [{"role": "user", "content": "Hello"}, *first.output, output]
    await house.openai.responses.create(model=MODEL, input=history, store=False)
    assert house.peers.generates[-1].conversation == by_reference
    thought, tool = by_reference.messages[1:]
    assert (thought.reasoning, thought.tool_calls[0].name) == ("Hm.", "City")
    assert (tool.tool_call_id, tool.content[0].text) == ("call_1", "rain")


async def test_a_conversation_goes_on_by_reference(house: House) -> None:
    client = house.openai.responses
    first = await client.create(**ASK, instructions="Be brief.")
    second = await client.create(
        model=MODEL, input="And?", previous_response_id=first.id, instructions="Be long."
    )
    assert roles(house) == [
        (pb.ROLE_SYSTEM, "Be long."),
        (pb.ROLE_USER, "Hello"),
        (pb.ROLE_ASSISTANT, "Hello"),
        (pb.ROLE_USER, "And?"),
    ]
    assert second.previous_response_id == first.id
    # What went in stands whole in the second, whatever becomes of the first.
    await client.delete(first.id)
    await client.create(model=MODEL, input="So?", previous_response_id=second.id)
    assert len(roles(house)) == 5
    items = [item async for item in client.input_items.list(second.id, order="asc", limit=2)]
    assert [(item.type, getattr(item, "role", "")) for item in items] == [
        ("message", "user"),
        ("message", "assistant"),
        ("message", "user"),
    ]


async def test_what_is_not_to_be_stored_is_not(house: House) -> None:
    made = await house.openai.responses.create(**ASK, store=False)
    with pytest.raises(openai.NotFoundError) as caught:
        await house.openai.responses.retrieve(made.id)
    assert caught.value.code == "response_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        await house.openai.responses.create(**ASK, previous_response_id=made.id)
    assert refused.value.code == "previous_response_not_found"
    assert refused.value.param == "previous_response_id"
    assert made.id in refused.value.message


async def test_a_response_is_deleted_once(house: House) -> None:
    made = await house.openai.responses.create(**ASK)
    answer = await house.http.delete(f"/v1/responses/{made.id}")
    expected = {"id": made.id, "object": "response.deleted", "deleted": True}
    assert (answer.status_code, answer.json()) == (200, expected)
    with pytest.raises(openai.NotFoundError):
        await house.openai.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        _ = [item async for item in house.openai.responses.input_items.list(made.id)]


async def test_a_response_is_the_affair_of_its_caller(house: House) -> None:
    alice: Any = {"extra_headers": {"x-cohabit-key": "alice"}}
    client = house.openai.responses
    made = await client.create(**ASK, **alice)
    assert (await client.retrieve(made.id, **alice)).id == made.id
    strangers: list[Any] = [{}, {"extra_headers": {"x-cohabit-key": "bob"}}]
    for strange in strangers:
        for ask in (client.retrieve, client.delete, client.cancel):
            with pytest.raises(openai.NotFoundError):
                await ask(made.id, **strange)
        with pytest.raises(openai.BadRequestError):
            await client.create(**ASK, previous_response_id=made.id, **strange)


async def test_the_store_forgets_the_oldest(tmp_path: Path) -> None:
    async with opened(tmp_path, stored_responses=1) as house:
        first = await house.openai.responses.create(**ASK)
        second = await house.openai.responses.create(**ASK)
        assert (await house.openai.responses.retrieve(second.id)).id == second.id
        with pytest.raises(openai.NotFoundError):
            await house.openai.responses.retrieve(first.id)


async def test_what_failed_before_anybody_knew_it_takes_nobodys_place(tmp_path: Path) -> None:
    async with opened(tmp_path, stored_responses=1) as house:
        made = await house.openai.responses.create(**ASK)
        house.peers.generate = breaks
        with pytest.raises(openai.InternalServerError):
            await house.openai.responses.create(**ASK)
        assert (await house.openai.responses.retrieve(made.id)).id == made.id


# Cancelling.


async def test_a_running_response_is_cancelled_by_another_request(house: House) -> None:
    house.peers.generate = house.peers.says_and_hangs
    client = house.openai.responses
    stream = await client.create(**ASK, stream=True)
    events = aiter(stream)
    first = await anext(events)
    assert first.type == "response.created"
    name = first.response.id
    while (await anext(events)).type != "response.output_text.delta":
        pass
    running = await client.retrieve(name)
    assert (running.status, running.output_text) == ("in_progress", "Hel")
    for refused in (
        client.delete(name),
        client.create(**ASK, previous_response_id=name),
    ):
        with pytest.raises(openai.BadRequestError):
            await refused
    cancelled = await client.cancel(name)
    assert (cancelled.status, cancelled.output_text) == ("cancelled", "Hel")
    await house.peers.seen("generate over")
    await house.peers.seen("admit over")
    with pytest.raises(openai.APIError) as told:
        await anext(events)
    assert told.value.code == "cancelled"
    assert (await client.retrieve(name)).status == "cancelled"
    with pytest.raises(openai.BadRequestError, match="nothing to cancel"):
        await client.cancel(name)
    await client.delete(name)


async def test_a_response_that_is_over_is_not_cancelled(house: House) -> None:
    made = await house.openai.responses.create(**ASK)
    with pytest.raises(openai.BadRequestError, match="nothing to cancel"):
        await house.openai.responses.cancel(made.id)
    with pytest.raises(openai.NotFoundError):
        await house.openai.responses.cancel("resp_0")


async def test_a_client_that_leaves_cancels_its_response(house: House) -> None:
    house.peers.generate = house.peers.says_and_hangs
    stream = await house.openai.responses.create(**ASK, stream=True)
    first = await anext(aiter(stream))
    assert first.type == "response.created"
    await stream.close()
    await house.peers.seen("admit over")
    # The edge's own books close just behind the calls.
    async with asyncio.timeout(DEADLINE_S):
        while (found := await house.openai.responses.retrieve(first.response.id)).status == (
            "in_progress"
        ):
            pass
    assert found.status == "cancelled"


# Failures.


async def test_a_failure_in_the_middle_is_never_a_clean_end(house: House) -> None:
    house.peers.generate = breaks
    stream = await house.openai.responses.create(**ASK, stream=True)
    seen: list[Any] = []
    with pytest.raises(openai.APIError) as caught:
        await drain(stream, seen)
    assert caught.value.code == "engine_crashed"
    assert seen[-1].type == "response.failed"
    assert seen[-1].response.error.code == "server_error"
    kept = await house.openai.responses.retrieve(seen[0].response.id)
    assert (kept.status, kept.output_text) == ("failed", "Hel")
    async with house.openai.responses.stream(**ASK) as helper:
        with pytest.raises(openai.APIError):
            await helper.get_final_response()
    with pytest.raises(openai.InternalServerError):
        await house.openai.responses.create(**ASK)


async def test_an_answer_that_was_cut_is_incomplete(house: House) -> None:
    end = pb.Finish(reason=pb.FINISH_REASON_LENGTH)
    says(house, text("Hel"), pb.GenerateResponse(finish=end))
    made = await house.openai.responses.create(**ASK)
    assert made.status == "incomplete"
    assert made.incomplete_details is not None
    assert made.incomplete_details.reason == "max_output_tokens"
    stream = await house.openai.responses.create(**ASK, stream=True)
    events = [event async for event in stream]
    assert events[-1].type == "response.incomplete"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_a_status_and_names_this_bodys_field(house: House, stream: bool) -> None:
    async def refuses(_request: Any, _context: Any) -> AsyncIterator[Any]:
        raise Fault(Reason.CONTEXT_LENGTH_EXCEEDED, "The prompt has 9000 tokens; 4096 fit.")
        yield

    house.peers.generate = refuses
    with pytest.raises(openai.BadRequestError) as caught:
        await house.openai.responses.create(**ASK, stream=stream)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")
    with pytest.raises(openai.BadRequestError) as refused:
        await house.openai.responses.create(**ASK, background=True)
    assert refused.value.param == "background"
    # The field of a fault is renamed where it comes from elsewhere, and there alone.
    answer = await house.http.post("/v1/responses", json={**ASK, "messages": [{}]})
    assert answer.json()["error"]["param"] == "messages"
    assert len(house.peers.generates) == 1


async def test_a_late_refusal_is_a_whole_stream_of_its_own(tmp_path: Path) -> None:
    async with opened(tmp_path, keepalive_s=0.05) as house:
        release = asyncio.Event()

        async def fails_late(_request: Any, _context: Any) -> AsyncIterator[Any]:
            await release.wait()
            raise Fault(Reason.MODEL_FAILED, "It does not load.", retry_after_s=3)
            yield

        house.peers.admit = fails_late
        body = {**ASK, "stream": True}
        async with house.http.stream("POST", "/v1/responses", json=body) as answer:
            chunks = answer.aiter_text()
            assert await anext(chunks) == ": keepalive\n\n"
            release.set()
            rest = "".join([chunk async for chunk in chunks])
        told = [line.removeprefix("event: ") for line in rest.split("\n") if "event: " in line]
        assert told == ["response.created", "response.in_progress", "response.failed", "error"]


async def test_a_query_that_is_not_understood_is_refused(house: House) -> None:
    made = await house.openai.responses.create(**ASK)
    for path in (
        f"/v1/responses/{made.id}?stream=true",
        f"/v1/responses/{made.id}/input_items?limit=0",
    ):
        answer = await house.http.get(path)
        assert (answer.status_code, bool(answer.json()["error"]["param"])) == (400, True)
    assert (await house.http.get("/v1/responses")).status_code == 405
    unknown = await house.http.options(f"/v1/responses/{made.id}")
    assert (unknown.status_code, unknown.headers["allow"]) == (405, "DELETE, GET")


# The document.


async def test_the_document_tells_of_every_route(house: House) -> None:
    document = (await house.http.get("/openapi.json")).json()
    told = {
        (path.removeprefix("/v1/responses"), method): sorted(said["responses"])
        for path, methods in document["paths"].items()
        for method, said in methods.items()
        if path.startswith("/v1/responses")
    }
    one = ["200", "400", "404"]
    assert told == {
        ("", "post"): ["200", "400", "404", "413", "429", "503"],
        ("/{response_id}", "get"): one,
        ("/{response_id}", "delete"): one,
        ("/{response_id}/cancel", "post"): one,
        ("/{response_id}/input_items", "get"): one,
    }
    listed = document["paths"]["/v1/responses/{response_id}/input_items"]["get"]["parameters"]
    names = {parameter["name"] for parameter in listed}
    assert names == {"response_id", "x-cohabit-key", "limit", "order", "after"}
