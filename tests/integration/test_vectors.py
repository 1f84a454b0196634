"""Embeddings, reranking and tokens through the whole house, by clients as they are."""

import base64
import math
from array import array
from collections.abc import Iterator
from typing import Any

import gguf
import httpx
import openai
import pytest

from tests.integration.house import House, running, until
from tests.tiny_bert import CLS, SEP, make_tiny_bert
from tests.tiny_gguf import make_tiny_gguf

TEXTS = ["the cat sat on the mat", "the moon is in the river", "tide"]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    models = folder / "models"
    models.mkdir()
    make_tiny_gguf(models / "tiny.gguf")
    make_tiny_bert(models / "bert.gguf")
    make_tiny_bert(models / "rank.gguf", pooling=gguf.PoolingType.RANK)
    make_tiny_bert(models / "slow.gguf", context=512, layers=24, embd=256)
    configured = {
        "tiny": {"path": "tiny.gguf", "context_tokens": 2048},
        "bert": {"path": "bert.gguf", "kind": "embedding"},
        "slow": {"path": "slow.gguf", "kind": "embedding", "places": 2},
        "rank": {"path": "rank.gguf", "kind": "reranker"},
    }
    with running(
        folder,
        llm={"models": configured},
        edge={"default_embedding_model": "bert"},
        scheduler={"lanes": {"embedding": {"cost": 1}}},
    ) as house:
        yield house


@pytest.fixture
def http(house: House) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=house.url, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture
def client(house: House) -> Iterator[openai.OpenAI]:
    transport = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(
        base_url=f"{house.url}/v1", api_key="none", max_retries=0, http_client=transport
    ) as client:
        yield client


def test_the_official_client_embeds_in_both_formats(client: openai.OpenAI) -> None:
    by_default = client.embeddings.create(model="bert", input=TEXTS)  # base64 on the wire
    floats = client.embeddings.create(model="bert", input=TEXTS, encoding_format="float")
    assert [item.index for item in by_default.data] == [0, 1, 2]
    assert by_default.model == "bert"
    assert by_default.usage.prompt_tokens == by_default.usage.total_tokens > len(TEXTS)
    for one, other in zip(by_default.data, floats.data, strict=True):
        assert math.hypot(*one.embedding) == pytest.approx(1, abs=1e-5)
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
    short = client.embeddings.create(model="bert", input=TEXTS[0], dimensions=8)
    assert len(short.data[0].embedding) == 8
    assert math.hypot(*short.data[0].embedding) == pytest.approx(1, abs=1e-5)


def test_base64_is_little_endian_float32(http: httpx.Client) -> None:
    body = {"model": "bert", "input": "tide", "encoding_format": "base64"}
    raw = http.post("/v1/embeddings", json=body).json()["data"][0]["embedding"]
    plain = http.post("/v1/embeddings", json=body | {"encoding_format": "float"}).json()
    told = array("f", base64.b64decode(raw))  # this machine is little-endian
    assert told.tolist() == pytest.approx(plain["data"][0]["embedding"], abs=1e-6)


def test_tokens_embed_as_their_text_does(http: httpx.Client, client: openai.OpenAI) -> None:
    body = {"model": "bert", "content": TEXTS[0], "add_special": True}
    tokens = http.post("/tokenize", json=body).json()["tokens"]
    assert (tokens[0], tokens[-1]) == (CLS, SEP)
    text = client.embeddings.create(model="bert", input=TEXTS[0]).data[0].embedding
    for given in (tokens, [tokens]):
        same = client.embeddings.create(model="bert", input=given)
        assert same.data[0].embedding == pytest.approx(text, abs=1e-3)
        assert same.usage.prompt_tokens == len(tokens)


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"input": ""}, "input", "is empty"),
        ({"input": ["a", ""]}, "input[1]", "is empty"),
        ({"input": []}, "input", "length >= 1"),
        ({"input": ["a"] * 257}, "input", "at most 256"),
        ({"input": ["a", 1]}, "input", "alone"),
        ({"input": [[1], []]}, "input[1]", "no tokens"),
        ({"input": [2**20]}, "input", "the token 1048576"),
        ({"input": "a", "dimensions": 65}, "dimensions", "from 1 to 64"),
        ({"input": "a", "dimensions": 0}, "dimensions", ">= 1"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", "int8"),
        ({"input": "a", "truncate": True}, "truncate", "Unknown field"),
        ({"input": ["a", "cat " * 127]}, "input[1]", "has 129"),
        ({"input": "a", "model": "tiny"}, "model", "kind language"),
        ({"input": "a", "model": "m" * 200}, "model", "at most 128"),
        ({"input": "a", "model": "rank"}, "model", "kind reranker"),
    ],
)
def test_what_cannot_be_embedded_is_named(
    http: httpx.Client, body: dict[str, Any], param: str, says: str
) -> None:
    answer = http.post("/v1/embeddings", json={"model": "bert", **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param), error
    assert says in error["message"]
    assert error["type"] == "invalid_request_error"


def test_a_model_that_nobody_has_and_one_that_does_not_write(
    http: httpx.Client, client: openai.OpenAI
) -> None:
    answer = http.post("/v1/embeddings", json={"model": "none", "input": "a"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    with pytest.raises(openai.BadRequestError, match="kind embedding"):
        client.chat.completions.create(model="bert", messages=[{"role": "user", "content": "a"}])


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_documents_are_ranked(http: httpx.Client, path: str) -> None:
    documents: list[Any] = ["the cat sat", {"text": "moon"}, "a river"]
    body = {"model": "rank", "query": "cat", "documents": documents}
    whole = http.post(path, json=body).json()
    scores = [result["relevance_score"] for result in whole["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert sorted(result["index"] for result in whole["results"]) == [0, 1, 2]
    assert whole["usage"]["total_tokens"] > 0
    assert "document" not in whole["results"][0]
    best = http.post(path, json=body | {"top_n": 1, "return_documents": True}).json()
    (first,) = best["results"]
    assert first["index"] == whole["results"][0]["index"]
    texts = ["the cat sat", "moon", "a river"]
    assert first["document"] == {"text": texts[first["index"]]}
    assert len(http.post(path, json=body | {"top_n": 99}).json()["results"]) == 3


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"documents": []}, "documents"),
        ({"documents": ["a", ""]}, "documents[1]"),
        ({"documents": ["a", "cat " * 130]}, "documents[1]"),
        ({"documents": [{"title": "a"}]}, "documents[0].title"),
        ({"top_n": 0}, "top_n"),
        ({"query": ""}, "query"),
        ({"model": "bert"}, "model"),
    ],
)
def test_what_cannot_be_ranked_is_named(
    http: httpx.Client, body: dict[str, Any], param: str
) -> None:
    asked = {"model": "rank", "query": "cat", "documents": ["moon"], **body}
    answer = http.post("/v1/rerank", json=asked)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


def test_tokens_there_and_back(http: httpx.Client) -> None:
    text = "please write <|im_end|> é"
    for parse, count in ((True, 1), (False, 0)):
        body = {"model": "tiny", "content": text, "parse_special": parse, "with_pieces": True}
        tokens = http.post("/tokenize", json=body).json()["tokens"]
        assert sum(token["piece"] == "<|im_end|>" for token in tokens) == count
        assert [195] in [token["piece"] for token in tokens]  # half of the last character
        ids = [token["id"] for token in tokens]
        back = http.post("/detokenize", json={"model": "tiny", "tokens": ids}).json()
        assert back == {"content": text}
    messages = [{"role": "user", "content": "hello"}]
    talk = http.post("/tokenize", json={"model": "tiny", "messages": messages}).json()["tokens"]
    said = http.post("/detokenize", json={"model": "tiny", "tokens": talk}).json()["content"]
    assert said.startswith("<|im_start|>user\nhello<|im_end|>")


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {"model": "tiny"}, 400, "content"),
        ("/tokenize", {"model": "tiny", "content": "a", "text": "a"}, 400, "text"),
        ("/tokenize", {"content": "a"}, 400, "model"),
        ("/tokenize", {"model": "none", "content": "a"}, 404, "model"),
        ("/tokenize", {"model": "bert", "content": "a" * 9000}, 400, "text"),
        (
            "/tokenize",
            {"model": "bert", "messages": [{"role": "user", "content": "a"}]},
            400,
            "messages",
        ),
        ("/detokenize", {"model": "tiny", "tokens": [10**6]}, 400, "tokens"),
        ("/detokenize", {"model": "bert", "tokens": [1] * 129}, 400, "tokens"),
    ],
)
def test_what_has_no_tokens_is_named(
    http: httpx.Client, path: str, body: dict[str, Any], status: int, param: str
) -> None:
    answer = http.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text


def test_features_as_the_former_api_has_them(http: httpx.Client) -> None:
    whole = http.post("/api/v1/feature-extraction", json={"text": "the tide"}).json()
    assert len(whole) == 64  # all there are
    body = {"text": "the tide", "num_features": 8, "model": "bert"}
    few = http.post("/api/v1/feature-extraction", json=body).json()
    assert len(few) == 8
    assert math.hypot(*few) == pytest.approx(1, abs=1e-5)
    scale = math.hypot(*whole[:8])
    assert few == pytest.approx([value / scale for value in whole[:8]], abs=1e-4)
    refused = http.post("/api/v1/feature-extraction", json={"text": "cat " * 130})
    assert refused.json()["error"]["param"] == "text"


async def test_a_client_that_leaves_frees_its_place(house: House) -> None:
    text = "the moon is in the water of a river and the tide waits on it " * 8
    body = {"model": "slow", "input": [text] * 256}
    async with httpx.AsyncClient(base_url=house.url, timeout=60, trust_env=False) as client:
        first = await client.post("/v1/embeddings", json=body | {"input": "a"})  # it is loaded
        assert first.status_code == 200
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/v1/embeddings", json=body, timeout=httpx.Timeout(60, read=0.3))

    async def nothing_runs() -> bool:
        return (await house.status()).permits_in_use == 0

    await until(nothing_runs, within_s=2, what="the place")


def test_the_page_of_routes_knows_them(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    single = {"/v1/embeddings", "/v1/rerank", "/v2/rerank", "/api/v1/feature-extraction"}
    assert single | {"/tokenize", "/detokenize"} <= set(document["paths"])
    ids = [way["operationId"] for path in document["paths"].values() for way in path.values()]
    assert len(ids) == len(set(ids))
    assert document["components"]["schemas"]["EmbeddingBody"]["required"] == ["model", "input"]
