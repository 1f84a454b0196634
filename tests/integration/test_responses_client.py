"""OpenAI's Responses through its official client, against the whole house and a real model."""

from collections.abc import Iterator

import openai
import pytest

from tests.integration.house import House, running

pytestmark = pytest.mark.model

QUESTION = "What is the capital of France? Answer in one sentence."


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with running(tmp_path_factory.mktemp("h")) as house:
        yield house


@pytest.fixture
def client(house: House) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{house.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_response_whole_and_streamed_is_the_chats_answer(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="smollm2", input=QUESTION, temperature=0)
    assert "Paris" in whole.output_text
    with client.responses.stream(model="smollm2", input=QUESTION, temperature=0) as stream:
        streamed = stream.get_final_response()
    chat = client.chat.completions.create(
        model="smollm2", messages=[{"role": "user", "content": QUESTION}], temperature=0
    )
    assert whole.output_text == streamed.output_text == chat.choices[0].message.content
    assert whole.usage is not None
    assert chat.usage is not None
    assert whole.usage.input_tokens == chat.usage.prompt_tokens


def test_a_conversation_goes_on_by_reference(client: openai.OpenAI) -> None:
    first = client.responses.create(model="smollm2", input=QUESTION, temperature=0)
    second = client.responses.create(
        model="smollm2", input="And of Spain?", previous_response_id=first.id, temperature=0
    )
    again = client.responses.create(
        model="smollm2",
        input=[
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": "And of Spain?"},
        ],
        temperature=0,
    )
    assert second.output_text == again.output_text
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.total_tokens


def test_the_end_of_the_allowance_is_an_incomplete_response(client: openai.OpenAI) -> None:
    made = client.responses.create(model="smollm2", input=QUESTION, max_output_tokens=3)
    assert made.status == "incomplete"
    assert made.usage is not None
    assert made.usage.output_tokens == 3
