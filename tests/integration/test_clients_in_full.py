"""Official and other clients, unmodified, against the whole house and a real model: tools, forms,
choices, likelihoods. What a model of 135 million parameters says is worth little; that it has the
form that was asked for is not left to it.
"""

import json
from collections.abc import Iterator
from typing import Any, Literal

import anthropic
import openai
import pydantic
import pytest
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.integration.house import House, running

pytestmark = pytest.mark.model

MODEL = "smollm2"
WEATHER = "What is the weather in Paris?"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Paris", "Rome"]},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOL: Any = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Weather now", "parameters": SCHEMA},
}
NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}


class Person(pydantic.BaseModel):
    """A form that a model must fill in."""

    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=120)
    mood: Literal["glad", "sad"]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with running(tmp_path_factory.mktemp("h")) as house:
        yield house


@pytest.fixture
def client(house: House) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{house.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(house: House) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=house.url, api_key="none", max_retries=0) as client:
        yield client


def fits(arguments: dict[str, Any]) -> bool:
    return (
        set(arguments) == {"city", "unit"}
        and arguments["city"] in ("Paris", "Rome")
        and arguments["unit"] in ("celsius", "fahrenheit")
    )


def test_a_tool_that_must_be_called_is_called(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": WEATHER}], tools=[TOOL],
        tool_choice=NAMED, temperature=0, max_tokens=200,
    )  # fmt: skip
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert fits(json.loads(call.function.arguments))
    told = client.chat.completions.create(
        model=MODEL, temperature=0, max_tokens=20, tools=[TOOL],
        messages=[
            {"role": "user", "content": WEATHER},
            choice.message.model_dump(exclude_none=True),  # type: ignore[list-item]
            {"role": "tool", "tool_call_id": call.id, "content": '{"temperature": 21}'},
        ],
    )  # fmt: skip
    assert told.choices[0].message.content is not None


def test_a_tool_is_streamed_by_the_clients_own_helper(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": WEATHER}], tools=[TOOL],
        tool_choice=NAMED, temperature=0, max_tokens=200,
    ) as stream:  # fmt: skip
        kinds = [event.type for event in stream]
        answer = stream.get_final_completion()
    assert kinds.count("tool_calls.function.arguments.done") == 1
    assert "tool_calls.function.arguments.delta" in kinds
    assert answer.choices[0].message.tool_calls is not None
    assert fits(json.loads(answer.choices[0].message.tool_calls[0].function.arguments))


def test_a_pydantic_model_is_filled_in(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model=MODEL, messages=[{"role": "user", "content": "Invent a person."}],
        response_format=Person, temperature=0.7, seed=3, max_tokens=200,
    )  # fmt: skip
    assert isinstance(answer.choices[0].message.parsed, Person)
    again = client.responses.parse(
        model=MODEL, input="Invent a person.", text_format=Person, max_output_tokens=200
    )
    assert isinstance(again.output_parsed, Person)


def test_a_grammar_and_an_expression_are_kept(client: openai.OpenAI) -> None:
    for form, allowed in (
        ({"type": "regex", "regex": "(yes|no)!"}, {"yes!", "no!"}),
        ({"type": "grammar", "grammar": 'root ::= "maybe" | "never"'}, {"maybe", "never"}),
    ):
        answer = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Is it raining?"}],
            extra_body={"response_format": form}, max_tokens=20,
        )  # fmt: skip
        assert answer.choices[0].message.content in allowed


def test_a_schema_that_cannot_be_kept_is_refused_with_its_path(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)y"}}}
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match=r"pattern.*properties.*a|properties.*a"):
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "x"}], response_format=form
        )


def test_choices_and_likelihoods(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Tell me something."}], n=3,
        logprobs=True, top_logprobs=2, max_tokens=12, temperature=1.2, seed=1,
    )  # fmt: skip
    assert sorted(choice.index for choice in answer.choices) == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content
        text = b"".join(bytes(token.bytes or []) for token in choice.logprobs.content)
        assert text.decode(errors="ignore").startswith((choice.message.content or "")[:5])
        assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)


def test_a_repeated_prompt_is_cached_and_said_to_be(client: openai.OpenAI) -> None:
    ask: Any = {
        "model": MODEL, "max_tokens": 4,
        "messages": [{"role": "user", "content": "Once upon a time there was a bridge. " * 20}],
    }  # fmt: skip
    client.chat.completions.create(**ask)
    usage = client.chat.completions.create(**ask).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1


def test_anthropics_client_has_a_tool_called(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(
        model=MODEL, max_tokens=200, messages=[{"role": "user", "content": WEATHER}],
        tools=[{"name": "get_weather", "input_schema": SCHEMA}],
        tool_choice={"type": "tool", "name": "get_weather"},
        extra_body={"temperature": 0},
    ) as stream:  # fmt: skip
        answer = stream.get_final_message()
    assert answer.stop_reason == "tool_use"
    (block,) = [block for block in answer.content if block.type == "tool_use"]
    assert block.name == "get_weather"
    assert fits(dict(block.input))


def test_responses_have_a_tool_called(client: openai.OpenAI) -> None:
    flat: Any = {"type": "function", **TOOL["function"], "strict": True}
    with client.responses.stream(
        model=MODEL, input=WEATHER, tools=[flat], tool_choice="required", temperature=0,
        max_output_tokens=60, parallel_tool_calls=False,
    ) as stream:  # fmt: skip
        answer = stream.get_final_response()
    calls = [item for item in answer.output if item.type == "function_call"]
    assert len(calls) == 1
    assert fits(json.loads(calls[0].arguments))


@tool
def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """Weather now."""
    return f"sunny in {city}"


def test_langchain_streams_and_calls_a_tool(house: House) -> None:
    chat: Any = ChatOpenAI(
        model=MODEL, base_url=f"{house.url}/v1", api_key="none", temperature=0, max_retries=0,
        max_completion_tokens=100,
    )  # fmt: skip
    assert "".join(str(piece.content) for piece in chat.stream("Say hi.")).strip()
    bound = chat.bind_tools([get_weather], tool_choice="get_weather")
    (call, *_) = bound.invoke(WEATHER).tool_calls
    assert call["name"] == "get_weather"
    assert call["args"]["city"] in ("Paris", "Rome")
