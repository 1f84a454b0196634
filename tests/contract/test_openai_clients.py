"""Clients of OpenAI's text dialects, unmodified, over real HTTP against a scripted engine.

The official one, LangChain and LiteLLM. What they make of an answer is what their users see.
"""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from cohabit.llm.v1 import llm_pb2 as pb
from tests.edge_kit import CHAT, MODEL, House, opened

# LiteLLM reads its list of prices from the network unless it is told that it has one.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm

HELLO: Any = CHAT["messages"]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


class City(BaseModel):
    """A structured answer."""

    name: str
    inhabitants: int


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path) as house:
        yield house


def says(house: House, *messages: pb.GenerateResponse) -> None:
    """What the engine answers from now on."""

    async def script(_request: Any, _context: Any) -> AsyncIterator[Any]:
        for message in messages:
            yield message

    house.peers.generate = script


def finish(
    reason: Any = pb.FINISH_REASON_STOP, choice: int = 0, tokens: int = 2
) -> pb.GenerateResponse:
    end = pb.Finish(
        reason=reason,
        usage=pb.Usage(prompt_tokens=7, cached_prompt_tokens=3, completion_tokens=tokens),
        timings=pb.Timings(first_token_ms=30, decode_ms=50),
    )
    return pb.GenerateResponse(choice=choice, finish=end)


def text(said: str, choice: int = 0, **more: Any) -> pb.GenerateResponse:
    return pb.GenerateResponse(text=said, choice=choice, tokens=1, **more)


def piece(index: int, arguments: str, **first: str) -> pb.GenerateResponse:
    delta = pb.ToolCallDelta(index=index, arguments_json=arguments, **first)
    return pb.GenerateResponse(tool_calls=[delta], tokens=1)


def likely(said: str, logprob: float) -> pb.TokenLogprob:
    candidate = pb.TokenLogprob.Candidate(text=said.encode(), logprob=logprob)
    return pb.TokenLogprob(chosen=candidate, top=[candidate])


CALLS = (
    piece(0, "", id="call_a", name="weather"),
    piece(0, '{"city": '),
    piece(0, '"Oslo"}'),
    piece(1, '{"city": "Rome"}', id="call_b", name="weather"),
    finish(pb.FINISH_REASON_TOOL_CALLS),
)
CITIES = [("call_a", {"city": "Oslo"}), ("call_b", {"city": "Rome"})]


# The official client.


async def test_tools_are_called(house: House) -> None:
    says(house, *CALLS)
    answer = await house.openai.chat.completions.create(**CHAT, tools=[WEATHER])
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert choice.message.tool_calls is not None
    made = [c for c in choice.message.tool_calls if c.type == "function"]
    assert [(c.id, json.loads(c.function.arguments)) for c in made] == CITIES
    (sent,) = house.peers.generates
    assert json.loads(sent.conversation.tools[0].parameters_json)["required"] == ["city"]


async def test_the_answers_of_tools_go_back(house: House) -> None:
    says(house, *CALLS)
    first = await house.openai.chat.completions.create(**CHAT, tools=[WEATHER])
    said = first.choices[0].message
    answers: Any = [
        {"role": "tool", "tool_call_id": call_id, "content": "rain"} for call_id, _ in CITIES
    ]
    says(house, text("Rain."), finish())
    await house.openai.chat.completions.create(
        model=MODEL,
        messages=[*HELLO, said.to_dict(), *answers],
        tools=[WEATHER],
    )
    _, turn, *results = house.peers.generates[-1].conversation.messages
    assert [call.id for call in turn.tool_calls] == ["call_a", "call_b"]
    assert [result.tool_call_id for result in results] == ["call_a", "call_b"]


async def test_the_streaming_helper_follows_tool_calls(house: House) -> None:
    says(house, *CALLS)
    async with house.openai.chat.completions.stream(**CHAT, tools=[WEATHER]) as stream:
        done = [
            (event.index, event.parsed_arguments)
            async for event in stream
            if event.type == "tool_calls.function.arguments.done"
        ]
        final = await stream.get_final_completion()
    assert done == [(0, {"city": "Oslo"}), (1, {"city": "Rome"})]
    message = final.choices[0].message
    assert message.content is None
    assert [call.id for call in message.tool_calls or []] == ["call_a", "call_b"]
    assert final.choices[0].finish_reason == "tool_calls"


async def test_only_one_call_without_parallel_ones(house: House) -> None:
    says(house, *CALLS)
    answer = await house.openai.chat.completions.create(
        **CHAT, tools=[WEATHER], parallel_tool_calls=False
    )
    assert [call.id for call in answer.choices[0].message.tool_calls or []] == ["call_a"]


async def test_an_answer_is_parsed_into_a_model(house: House) -> None:
    says(house, text('{"name": "Oslo", '), text('"inhabitants": 700000}'), finish())
    answer = await house.openai.chat.completions.parse(**CHAT, response_format=City)
    assert answer.choices[0].message.parsed == City(name="Oslo", inhabitants=700000)
    schema = json.loads(house.peers.generates[0].output.json_schema)
    assert set(schema["properties"]) == {"name", "inhabitants"}


async def test_several_answers_at_once(house: House) -> None:
    script = (text("a"), text("x", 1), text("b"), finish(choice=1, tokens=1), finish())
    says(house, *script)
    whole = await house.openai.chat.completions.create(**CHAT, n=2)
    assert [choice.message.content for choice in whole.choices] == ["ab", "x"]
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (7, 3)
    said = ["", ""]
    last = None
    stream = await house.openai.chat.completions.create(
        **CHAT, n=2, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        for choice in chunk.choices:
            said[choice.index] += choice.delta.content or ""
        last = chunk
    assert said == ["ab", "x"]
    assert last is not None
    assert last.usage == whole.usage
    assert [sent.choices for sent in house.peers.generates] == [2, 2]


async def test_logprobs(house: House) -> None:
    tokens = [likely("Hel", -0.25), likely("lo", -0.5)]
    says(house, text("Hello", logprobs=tokens), finish())
    answer = await house.openai.chat.completions.create(**CHAT, logprobs=True, top_logprobs=1)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert [(t.token, t.logprob) for t in logprobs.content or []] == [("Hel", -0.25), ("lo", -0.5)]
    former = await house.openai.completions.create(model=MODEL, prompt="Say hello", logprobs=1)
    said = former.choices[0].logprobs
    assert said is not None
    assert (said.tokens, said.text_offset) == (["Hel", "lo"], [0, 3])


async def test_completions(house: House) -> None:
    whole = await house.openai.completions.create(model=MODEL, prompt="Once", suffix="end")
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == ("Hello", "stop")
    assert whole.usage is not None
    assert whole.usage.total_tokens == 9
    stream = await house.openai.completions.create(model=MODEL, prompt=[5, 6], stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Hello"
    assert chunks[-1].choices[0].finish_reason == "stop"
    text_prompt, token_prompt = house.peers.generates
    assert (text_prompt.prompt, text_prompt.suffix) == ("Once", "end")
    assert list(token_prompt.prompt_token_ids.ids) == [5, 6]


async def test_several_prompts_in_one_request_are_refused(house: House) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await house.openai.completions.create(model=MODEL, prompt=["a", "b"])
    assert caught.value.param == "prompt"


@pytest.mark.parametrize("stream", [False, True])
async def test_where_the_time_went_stands_beside_the_answer(house: House, stream: bool) -> None:
    says(house, text("Hi"), finish(tokens=3))
    if stream:
        chunks = [c async for c in await house.openai.chat.completions.create(**CHAT, stream=True)]
        extra = chunks[-1].model_extra
    else:
        extra = (await house.openai.chat.completions.create(**CHAT)).model_extra
    assert extra is not None
    assert extra["metrics"]["queue_wait_ms"] == 7
    assert extra["metrics"]["tokens_per_second"] == 40


# LangChain.


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"rain in {city}"


@pytest.fixture
def langchain(house: House) -> ChatOpenAI:
    return ChatOpenAI(
        model=MODEL,
        base_url=f"{house.url}/v1",
        api_key=lambda: "none",
        max_retries=0,
        stream_usage=True,
    )


async def test_langchain_binds_tools(house: House, langchain: ChatOpenAI) -> None:
    says(house, *CALLS)
    answer = await langchain.bind_tools([weather], tool_choice="weather").ainvoke("Hello")
    assert [(c["id"], c["args"]) for c in answer.tool_calls] == CITIES
    (sent,) = house.peers.generates
    assert sent.conversation.tool_choice == pb.ToolChoice(
        mode=pb.ToolChoice.MODE_NAMED, name="weather"
    )


async def test_langchain_streams_tool_calls(house: House, langchain: ChatOpenAI) -> None:
    says(house, *CALLS)
    whole: Any = None
    async for chunk in langchain.bind_tools([weather]).astream("Hello"):
        whole = chunk if whole is None else whole + chunk
    assert [(c["id"], c["args"]) for c in whole.tool_calls] == CITIES
    assert whole.usage_metadata["input_tokens"] == 7


async def test_langchain_reads_structured_answers(house: House, langchain: ChatOpenAI) -> None:
    says(house, text('{"name": "Oslo", "inhabitants": 700000}'), finish())
    answer = await langchain.with_structured_output(City, method="json_schema").ainvoke("Hello")
    assert answer == City(name="Oslo", inhabitants=700000)


# LiteLLM.


@pytest.mark.filterwarnings("ignore:Items? .* using the `ReadOnly` qualifier:UserWarning")
async def test_litellm_answers_and_calls_tools(house: House) -> None:
    to: dict[str, Any] = {
        "model": f"openai/{MODEL}",
        "api_base": f"{house.url}/v1",
        "api_key": "none",
        "messages": HELLO,
    }
    says(house, text("Hel"), text("lo"), finish())
    answer = await litellm.acompletion(**to)
    assert answer.choices[0].message.content == "Hello"
    assert answer.usage.total_tokens == 9
    stream = await litellm.acompletion(**to, stream=True)
    said = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(said) == "Hello"
    says(house, *CALLS)
    answer = await litellm.acompletion(**to, tools=[WEATHER], tool_choice="required")
    made = answer.choices[0].message.tool_calls
    assert [(c.id, json.loads(c.function.arguments)) for c in made] == CITIES
