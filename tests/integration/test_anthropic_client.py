"""The official Anthropic client, unmodified, against the whole house and a real language model."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.integration.house import House, running

pytestmark = pytest.mark.model

ASK: Any = {
    "model": "smollm2",
    "max_tokens": 40,
    "system": [{"type": "text", "text": "You are a helpful assistant."}],
    "messages": [
        {"role": "user", "content": "What is the capital of France? Answer in one sentence."}
    ],
    "extra_body": {"temperature": 0},
}
PROMPT: Any = {key: ASK[key] for key in ("model", "system", "messages")}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with running(tmp_path_factory.mktemp("h")) as house:
        yield house


@pytest.fixture
def client(house: House) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=house.url, api_key="none", max_retries=0) as client:
        yield client


def text_of(answer: anthropic.types.Message) -> str:
    return "".join(block.text for block in answer.content if block.type == "text")


def test_a_prompt_is_counted_before_the_model_is_loaded_and_alike_after(
    client: anthropic.Anthropic,
) -> None:
    cold = client.messages.count_tokens(**PROMPT)
    answer = client.messages.create(**ASK)
    assert "Paris" in text_of(answer)
    assert answer.stop_reason == "end_turn"
    read = answer.usage.cache_read_input_tokens or 0
    assert answer.usage.input_tokens + read == cold.input_tokens
    assert client.messages.count_tokens(**PROMPT) == cold


def test_a_stream_is_the_same_answer(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(**ASK)
    with client.messages.stream(**ASK) as stream:
        pieces = list(stream.text_stream)
        streamed = stream.get_final_message()
    assert "".join(pieces) == text_of(streamed) == text_of(whole)
    assert streamed.stop_reason == whole.stop_reason
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    assert len(pieces) > 5, "it came in one piece"


def test_stop_sequences_and_length(client: anthropic.Anthropic) -> None:
    stopped = client.messages.create(**ASK, stop_sequences=["Paris"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "Paris")
    assert "Paris" not in text_of(stopped)
    short = client.messages.create(**{**ASK, "max_tokens": 3})
    assert (short.stop_reason, short.usage.output_tokens) == ("max_tokens", 3)


def test_what_the_assistant_began_is_continued(client: anthropic.Anthropic) -> None:
    begun = {"role": "assistant", "content": "The capital of France is"}
    answer = client.messages.create(**{**ASK, "messages": [*ASK["messages"], begun]})
    assert text_of(answer).lstrip().startswith("Paris")


def test_a_prompt_that_cannot_fit_is_counted_and_refused(client: anthropic.Anthropic) -> None:
    long: Any = {"messages": [{"role": "user", "content": "word " * 4000}]}
    assert client.messages.count_tokens(**{**PROMPT, **long}).input_tokens > 4000
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(**{**ASK, **long})
    assert caught.value.error_code == "context_length_exceeded"
