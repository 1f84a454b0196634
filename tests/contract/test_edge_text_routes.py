"""Completions, the legacy text routes, and names that are no model's, over real HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from cohabit.models.v1 import models_pb2
from tests.edge_kit import MODEL, House, opened

ROUTES = {
    "generate": MODEL,
    "generate_large": "big",
    "autocomplete": MODEL,
    "summarization": MODEL,
    "engines": MODEL,
}
TEXTS = ["/api/v1/generate", "/api/v1/generate-large", "/api/v1/autocomplete"]
ENGINE = "/v1/engines/{}/completions"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path, legacy_models=ROUTES) as house:
        house.peers.models.append(models_pb2.Model(key="big"))
        yield house


async def post(house: House, path: str, **body: Any) -> Any:
    answer = await house.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("path", TEXTS)
async def test_texts_are_continued(house: House, path: str) -> None:
    told = await post(house, path, text="Hi, ", model="best", min_probability=0.5)
    assert told == [
        {"generated_text": "Hi, Hello", "stop_reason": "stop", "thinking_content": None}
    ]
    (sent,) = house.peers.generates
    assert (sent.prompt, sent.min_probability) == ("Hi, ", 0.5)


async def test_a_text_is_summarised(house: House) -> None:
    assert await post(house, "/api/v1/summarization", text="Long.") == {"summary": "Hello"}


@pytest.mark.parametrize(
    ("path", "model", "asked"),
    [
        ("/api/v1/generate", None, MODEL),
        ("/api/v1/generate", "best", MODEL),
        ("/api/v1/generate", "big", "big"),
        ("/api/v1/generate-large", "best", "big"),
        ("/api/v1/generate-large", MODEL, MODEL),
    ],
)
async def test_a_name_that_is_no_models_means_the_routes_own(
    house: House, path: str, model: str | None, asked: str
) -> None:
    await post(house, path, text="Hi", model=model)
    assert [admit.model for admit in house.peers.admits] == [asked]


@pytest.mark.parametrize(("engine", "asked"), [("davinci", MODEL), ("big", "big")])
async def test_engines_complete(house: House, engine: str, asked: str) -> None:
    told = await post(house, ENGINE.format(engine), prompt="Once")
    assert (told["object"], told["choices"][0]["text"]) == ("text_completion", "Hello")
    assert [admit.model for admit in house.peers.admits] == [asked]
    answer = await house.http.post(ENGINE.format(engine), json={"prompt": "Once", "stream": True})
    assert answer.text.endswith("data: [DONE]\n\n")


async def test_a_route_without_a_model_is_not_there(tmp_path: Path) -> None:
    async with opened(tmp_path, legacy_models={"generate": MODEL}) as house:
        document = (await house.http.get("/openapi.json")).json()
        assert [path for path in document["paths"] if "api/v1" in path] == ["/api/v1/generate"]
        for path in ("/api/v1/autocomplete", ENGINE.format("x")):
            answer = await house.http.post(path, json={"text": "Hi"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found")


async def test_the_routes_own_model_must_exist(tmp_path: Path) -> None:
    async def refuses(_request: Any, _context: Any) -> AsyncIterator[Any]:
        raise Fault(Reason.MODEL_NOT_FOUND, "No model of that name.")
        yield

    async with opened(tmp_path, legacy_models={"generate": "gone"}) as house:
        house.peers.admit = refuses
        answer = await house.http.post("/api/v1/generate", json={"text": "Hi", "model": "best"})
        assert answer.status_code == 404
        assert "The model `gone` does not exist" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"model": MODEL, "prompt": "Once"}, "prompt"),
        ("/v1/completions", {"model": MODEL, "prompt": "Once", "stream": True}, "prompt"),
        (ENGINE.format("x"), {"prompt": "Once"}, "prompt"),
        ("/api/v1/generate", {"text": "Hi"}, "text"),
        ("/api/v1/summarization", {"text": "Hi"}, "text"),
    ],
)
async def test_a_prompt_that_is_too_long_is_called_as_its_route_calls_it(
    house: House, path: str, body: dict[str, Any], param: str
) -> None:
    async def refuses(_request: Any, _context: Any) -> AsyncIterator[Any]:
        raise Fault(Reason.CONTEXT_LENGTH_EXCEEDED, "The prompt has 9000 tokens; 4096 fit.")
        yield

    house.peers.generate = refuses
    answer = await house.http.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert answer.json()["error"]["param"] == param


async def test_prompts_for_twins_are_counted_whatever_they_are_made_of(house: House) -> None:
    house.peers.models = [
        models_pb2.Model(key=key, family="twins", service="llm") for key in ("a", "b")
    ]
    for fields in ({"prompt": "Once", "suffix": "!"}, {"prompt": [5, 6, 7]}):
        await post(house, "/v1/completions", model="twins", **fields)
    assert [admit.prompt_tokens for admit in house.peers.admits] == [42, 3]
    (counted,) = house.peers.counts
    assert counted.prompt == "Once!"


async def test_every_route_is_described(house: House) -> None:
    document = (await house.http.get("/openapi.json")).json()
    described = [path for path, said in document["paths"].items() if "post" in said]
    assert set(described) >= {
        "/v1/chat/completions",
        "/v1/completions",
        *TEXTS,
        "/api/v1/summarization",
        ENGINE.format("{engine}"),
    }
    operations = [said["post"] for said in document["paths"].values() if "post" in said]
    assert len({said["operationId"] for said in operations}) == len(operations)
    assert {tag for said in operations for tag in said["tags"]} <= {
        tag["name"] for tag in document["tags"]
    }
    engine = document["paths"][ENGINE.format("{engine}")]["post"]
    assert [p["name"] for p in engine["parameters"] if p["in"] == "path"] == ["engine"]


async def test_several_results_are_in_order(house: House) -> None:
    async def says(_request: Any, _context: Any) -> AsyncIterator[Any]:
        for choice in (1, 0):
            finish = pb.Finish(reason=pb.FINISH_REASON_LENGTH)
            yield pb.GenerateResponse(text=f" {choice}", choice=choice, finish=finish)

    house.peers.generate = says
    told = await post(house, "/api/v1/generate", text="Hi", number_of_results=2)
    assert [(one["generated_text"], one["stop_reason"]) for one in told] == [
        ("Hi 0", "max_length"),
        ("Hi 1", "max_length"),
    ]
