"""The legacy text routes: bodies into llm.v1, and answers in their shapes."""

import json
from typing import Any

import pytest

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from edge.answering import Asked, Served
from edge.legacy import ask_summary, ask_texts
from edge.speech import PARAM

PLAYGROUND = {
    "text": "Hi I am bored so looking",
    "number_of_results": 1,
    "max_length": 100,
    "max_sentences": 1,
    "min_probability": 0.7,
    "model": "best",
    "enable_thinking": False,
}
DEFAULTS = pb.Sampling(top_p=0.9, top_k=40, temperature=0.7, repetition_penalty=1.2)


def texts(**fields: Any) -> Asked:
    return ask_texts("big", json.dumps({"text": "Hi", **fields}).encode())


def answered(asked: Asked, *messages: pb.GenerateResponse) -> Any:
    writer = asked.whole(Served("big", 5))
    for message in messages:
        writer.feed(message)
    return json.loads(writer.body())


def finish(reason: Any = pb.FINISH_REASON_STOP, **more: Any) -> pb.GenerateResponse:
    stop = more.pop("stop", "")
    return pb.GenerateResponse(finish=pb.Finish(reason=reason, stop=stop), **more)


def test_the_playgrounds_request_continues_the_text_as_it_stands() -> None:
    asked = texts(**PLAYGROUND)
    assert (asked.model, asked.otherwise, asked.stream, asked.prompt) == (
        "best",
        "big",
        False,
        "text",
    )
    assert asked.generate == pb.GenerateRequest(
        model="best",
        prompt="Hi I am bored so looking",
        max_tokens=100,
        choices=1,
        max_sentences=1,
        min_probability=0.7,
        sampling=DEFAULTS,
    )


def test_the_least_request_has_the_documented_defaults() -> None:
    expected = pb.GenerateRequest(model="big", prompt="Hi", max_tokens=100, sampling=DEFAULTS)
    assert texts().generate == expected
    assert texts(seed=0, min_length=1, stop_sequences=[]).generate == expected


def test_everything_that_is_understood() -> None:
    generate = texts(
        number_of_results=2,
        max_length=5,
        stop_sequences=["a", "b"],
        top_p=0.5,
        top_k=0,
        temperature=0,
        repetition_penalty=1,
        min_p=0.25,
        seed=7,
    ).generate
    assert (generate.choices, generate.max_tokens, list(generate.stop)) == (2, 5, ["a", "b"])
    assert generate.sampling == pb.Sampling(
        top_p=0.5, top_k=0, temperature=0, repetition_penalty=1, min_p=0.25, seed=7
    )


def test_thinking_needs_the_chat_template() -> None:
    generate = texts(enable_thinking=True).generate
    assert generate.thinking == pb.THINKING_ENABLED
    system, user = generate.conversation.messages
    assert (system.role, user.role) == (pb.ROLE_SYSTEM, pb.ROLE_USER)
    assert user.content[0].text == "Hi"


def test_answers_repeat_the_text_and_say_why_they_ended() -> None:
    told = answered(
        texts(number_of_results=3),
        pb.GenerateResponse(text=" b", choice=1),
        finish(text=" a"),
        finish(pb.FINISH_REASON_LENGTH, choice=1, text="c"),
        finish(stop="###", choice=2, reasoning="Hm"),
    )
    assert told == [
        {"generated_text": "Hi a", "stop_reason": "stop", "thinking_content": None},
        {"generated_text": "Hi bc", "stop_reason": "max_length", "thinking_content": None},
        {"generated_text": "Hi", "stop_reason": "###", "thinking_content": "Hm"},
    ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"text": ""}, "text"),
        ({"number_of_results": 17}, "number_of_results"),
        ({"number_of_results": 0}, "number_of_results"),
        ({"max_length": 0}, "max_length"),
        ({"min_length": 5}, "min_length"),
        ({"stream": True}, "stream"),
        ({"stop_sequences": ["x"] * 65}, "stop_sequences"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"min_probability": 2}, "min_probability"),
        ({"top_p": 0}, "top_p"),
        ({"mood": 1}, "mood"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Fault) as caught:
        texts(**fields)
    assert caught.value.reason is Reason.INVALID_REQUEST
    assert caught.value.metadata[PARAM] == param


def summary(**fields: Any) -> Asked:
    return ask_summary("big", json.dumps({"text": "Long.", **fields}).encode())


def test_a_summary_is_asked_of_the_chat_model() -> None:
    asked = summary(max_length=300)
    system, user = asked.generate.conversation.messages
    assert "300 characters" in system.content[0].text
    assert user.content[0].text == "Long."
    assert asked.generate.thinking == pb.THINKING_DISABLED
    assert 300 / 2 <= asked.generate.max_tokens < 300
    assert "1000 characters" in summary().generate.conversation.messages[0].content[0].text


@pytest.mark.parametrize(
    ("said", "most", "told"),
    [
        (" Short. ", 20, "Short."),
        ("one two three", 13, "one two three"),
        ("one two three", 12, "one two"),
        ("one two three", 7, "one two"),
        ("one two three", 6, "one"),
        ("onetwothree", 6, "onetwo"),
    ],
)
def test_a_summary_is_cut_at_a_word(said: str, most: int, told: str) -> None:
    asked = summary(max_length=most)
    assert answered(asked, pb.GenerateResponse(text=said), finish()) == {"summary": told}
