"""The official OpenAI client, unmodified, against the whole house and a real language model."""

from collections.abc import Iterator

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.integration.house import House, running

pytestmark = pytest.mark.model

HELLO: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "What is the capital of France? Answer in one sentence."}
]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with running(tmp_path_factory.mktemp("h")) as house:
        yield house


@pytest.fixture
def client(house: House) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{house.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_models_are_listed(client: openai.OpenAI) -> None:
    models = {model.id: model for model in client.models.list()}
    assert set(models) == {"smollm2", "tiny"}
    assert client.models.retrieve("smollm2").object == "model"


def test_a_chat_is_answered(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="smollm2", messages=HELLO, temperature=0, max_tokens=40
    )
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id


def test_a_stream_is_the_same_answer(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(
        model="smollm2", messages=HELLO, temperature=0, max_tokens=40
    )
    stream = client.chat.completions.create(
        model="smollm2",
        messages=HELLO,
        temperature=0,
        max_tokens=40,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert all(c.usage is None for c in chunks[:-1])
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert len(chunks) > 5, "it came in one piece"


def test_stop_strings_and_length(client: openai.OpenAI) -> None:
    stopped = client.chat.completions.create(
        model="smollm2", messages=HELLO, temperature=0, stop=["Paris"], max_tokens=40
    )
    assert "Paris" not in (stopped.choices[0].message.content or "")
    assert stopped.choices[0].finish_reason == "stop"
    short = client.chat.completions.create(
        model="smollm2", messages=HELLO, temperature=0, max_tokens=3
    )
    assert short.choices[0].finish_reason == "length"
    assert short.usage is not None
    assert short.usage.completion_tokens == 3


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-99", messages=HELLO)
    assert caught.value.code == "model_not_found"
    assert "gpt-99" in caught.value.message


def test_malformed_json_is_a_bad_request(house: House) -> None:
    answer = httpx.post(f"{house.url}/v1/chat/completions", content=b'{"model": "smollm2", ')
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.headers["x-request-id"]


def test_an_overflow_of_the_context_is_a_bad_request(client: openai.OpenAI) -> None:
    long: list[ChatCompletionMessageParam] = [{"role": "user", "content": "word " * 4000}]
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="smollm2", messages=long, stream=stream)
        assert caught.value.code == "context_length_exceeded"
        assert "2048" in caught.value.message
