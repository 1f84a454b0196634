"""OpenAI's completion dialect: its body into llm.v1, and answers into events and bodies."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from edge.answering import Served
from edge.completions_body import Completion
from edge.completions_request import CompletionRequest, parse, parse_for_engine
from edge.completions_response import Collected, Stream
from edge.speech import PARAM

SERVED = Served("m", 5, queue_wait_ms=9)


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "prompt": "Once", **fields}).encode()


def parsed(**fields: Any) -> CompletionRequest:
    return parse(body(**fields))


def test_the_least_request_has_openais_own_length() -> None:
    asked = parsed()
    assert (asked.model, asked.stream, asked.include_usage) == ("m", False, False)
    expected = pb.GenerateRequest(model="m", prompt="Once", max_tokens=16, sampling=pb.Sampling())
    assert asked.generate == expected


def test_everything_that_is_understood() -> None:
    asked = parsed(
        suffix="end",
        max_tokens=9,
        n=3,
        best_of=3,
        logprobs=5,
        stop="x",
        temperature=0,
        seed=1,
        stream=True,
        stream_options={"include_usage": True},
        echo=False,
        user="u",
        max_sentences=2,
    )
    assert (asked.stream, asked.include_usage) == (True, True)
    assert asked.generate == pb.GenerateRequest(
        model="m",
        prompt="Once",
        suffix="end",
        max_tokens=9,
        choices=3,
        logprobs=True,
        top_logprobs=5,
        stop=["x"],
        sampling=pb.Sampling(temperature=0, seed=1),
        max_sentences=2,
    )


@pytest.mark.parametrize("prompt", ["Once", ["Once"]])
def test_one_text_is_a_prompt_also_in_a_list(prompt: Any) -> None:
    assert parsed(prompt=prompt).generate.prompt == "Once"


@pytest.mark.parametrize("prompt", [[1, 2], [[1, 2]]])
def test_tokens_are_a_prompt_also_in_a_list(prompt: Any) -> None:
    generate = parsed(prompt=prompt).generate
    assert generate.WhichOneof("input") == "prompt_token_ids"
    assert list(generate.prompt_token_ids.ids) == [1, 2]


def test_no_others_are_asked_for_with_the_logprob_of_the_chosen() -> None:
    generate = parsed(logprobs=0).generate
    assert (generate.logprobs, generate.top_logprobs) == (True, 0)
    assert not parsed().generate.logprobs


def test_the_path_may_name_the_model() -> None:
    asked = parse_for_engine("davinci", b'{"prompt": "Once", "model": "other"}')
    assert (asked.model, asked.generate.model) == ("davinci", "davinci")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [""]}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": ["a", "b"]}, "prompt"),
    ({"prompt": [[1], [2]]}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": ["a", 1]}, "prompt"),
    ({"prompt": [-1]}, "prompt[0]"),
    ({"prompt": [2**31]}, "prompt[0]"),
    ({"prompt": None}, "prompt"),
    ({"prompt": [1], "suffix": "x"}, "suffix"),
    ({"echo": True}, "echo"),
    ({"best_of": 2}, "best_of"),
    ({"best_of": 2, "n": 3}, "best_of"),
    ({"n": 17}, "n"),
    ({"logprobs": 21}, "logprobs"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"stop": [""]}, "stop"),
    ({"messages": []}, "messages"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=[str(f)[:60] for f, _ in REFUSED])
def test_refusals_name_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Fault) as caught:
        parsed(**fields)
    assert caught.value.reason is Reason.INVALID_REQUEST
    assert caught.value.metadata[PARAM] == param
    assert param in caught.value.message


# Answers.


def token(text: bytes, logprob: float, **top: float) -> pb.TokenLogprob:
    candidate = pb.TokenLogprob.Candidate
    others = [candidate(text=word.encode(), logprob=p) for word, p in top.items()]
    return pb.TokenLogprob(chosen=candidate(text=text, logprob=logprob), top=others)


def finish(reason: Any = pb.FINISH_REASON_STOP, **more: Any) -> pb.GenerateResponse:
    usage = pb.Usage(prompt_tokens=7, completion_tokens=2)
    return pb.GenerateResponse(finish=pb.Finish(reason=reason, usage=usage), **more)


def stream(*messages: pb.GenerateResponse, include_usage: bool = False) -> list[Any]:
    """All events, checked against the struct that /openapi.json shows; the last is [DONE]."""
    writer = Stream("cmpl-1", SERVED, include_usage=include_usage)
    raw = b"".join(writer.feed(message) for message in messages) + writer.end()
    *parts, done, nothing = raw.decode().split("\n\n")
    assert (done, nothing) == ("data: [DONE]", "")
    for part in parts:
        msgspec.json.decode(part.removeprefix("data: "), type=Completion, strict=True)
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def whole(*messages: pb.GenerateResponse) -> Any:
    collected = Collected("cmpl-1", SERVED)
    for message in messages:
        collected.feed(message)
    msgspec.json.decode(collected.body(), type=Completion)
    return json.loads(collected.body())


def test_a_stream() -> None:
    prefill = pb.GenerateResponse(prefill=pb.PrefillProgress(done_tokens=1, total_tokens=2))
    first, second, last = stream(
        prefill,
        pb.GenerateResponse(text=" upon"),
        pb.GenerateResponse(text=" a", choice=1),
        finish(pb.FINISH_REASON_LENGTH, text=" time"),
    )
    assert first == {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 5,
        "model": "m",
        "system_fingerprint": None,
        "choices": [{"index": 0, "text": " upon", "logprobs": None, "finish_reason": None}],
    }
    assert second["choices"][0]["index"] == 1
    assert last["choices"][0]["text"] == " time"
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["metrics"]["queue_wait_ms"] == 9


def test_a_stream_with_usage() -> None:
    *chunks, last = stream(pb.GenerateResponse(text="x"), finish(), include_usage=True)
    assert [chunk["usage"] for chunk in chunks] == [None, None]
    assert not any("metrics" in chunk for chunk in chunks)
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 9)
    assert last["metrics"]["queue_wait_ms"] == 9


def test_a_whole_answer() -> None:
    told = whole(
        pb.GenerateResponse(text="b", choice=1), finish(text="a"), finish(choice=1, text="c")
    )
    assert (told["object"], told["id"]) == ("text_completion", "cmpl-1")
    assert [(c["index"], c["text"], c["finish_reason"]) for c in told["choices"]] == [
        (0, "a", "stop"),
        (1, "bc", "stop"),
    ]
    assert told["usage"]["completion_tokens"] == 4
    assert told["metrics"]["queue_wait_ms"] == 9


def test_logprobs_in_their_former_shape() -> None:
    tokens = [token(b"He", -0.5, He=-0.5, Hi=-1.5), token(b"\xe2\x82", -1), token(b"\xac", -2)]
    expected = {
        "tokens": ["He", "bytes:\\xe2\\x82", "bytes:\\xac"],
        "token_logprobs": [-0.5, -1.0, -2.0],
        "top_logprobs": [
            {"He": -0.5, "Hi": -1.5},
            {"bytes:\\xe2\\x82": -1.0},
            {"bytes:\\xac": -2.0},
        ],
        "text_offset": [0, 2, 2],
    }
    assert whole(finish(text="He€", logprobs=tokens))["choices"][0]["logprobs"] == expected


@given(st.lists(st.text(min_size=1), min_size=1, max_size=8), st.data())
def test_offsets_are_the_same_however_the_stream_is_cut(texts: list[str], data: Any) -> None:
    tokens = [token(text.encode(), -1) for text in texts]
    cut = data.draw(st.integers(0, len(tokens)))
    pieces = [
        pb.GenerateResponse(text="".join(texts[:cut]), logprobs=tokens[:cut]),
        finish(text="".join(texts[cut:]), logprobs=tokens[cut:]),
    ]
    streamed = [
        offset
        for event in stream(*pieces)
        for offset in (event["choices"][0]["logprobs"] or {}).get("text_offset", ())
    ]
    expected = [sum(map(len, texts[:i])) for i in range(len(texts))]
    assert streamed == expected
    assert whole(*pieces)["choices"][0]["logprobs"]["text_offset"] == expected
