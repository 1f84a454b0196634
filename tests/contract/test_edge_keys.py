"""API keys at a real edge: who is let in, as whom, to what, and how much of it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2
from tests.anthropic_kit import client_of
from tests.edge_kit import CHAT, DEADLINE_S, MODEL, House, opened
from tests.keys_kit import FOREVER, FORMER, bearing, secret_of, write_keys

CHATS = "/v1/chat/completions"


def model(key: str, family: str = "") -> models_pb2.Model:
    return models_pb2.Model(key=key, family=family, service="llm")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    file = write_keys(
        tmp_path / "keys.yaml",
        alice={"tier": "sub", "expires": FOREVER},
        bob={"tier": "free", "fairness_key": "team", "models": [MODEL, "twins"]},
        one={"fairness_key": "team", "models": ["pair-a"]},
        both={"models": ["pair-a", "pair-b"]},
        old={"expires": FORMER},
        off={"disabled": True},
        slow={"requests_per_minute": 2},
        single={"concurrent": 1},
        watcher={"signals": True, "models": []},
    )
    async with opened(tmp_path, keys_file=file, stored_responses=16) as up:
        up.peers.models += [
            *(model("big"), model("twins-a", "twins"), model("twins-b", "twins")),
            *(model("pair-a", "pair"), model("pair-b", "pair")),
        ]
        yield up


async def chat(house: House, name: str, **more: Any) -> httpx.Response:
    """A chat with this key; `more`: fields of the body, or `headers`."""
    headers = bearing(name) | more.pop("headers", {})
    return await house.http.post(CHATS, json=CHAT | more, headers=headers)


def error_of(answer: httpx.Response) -> Any:
    return answer.json()["error"]


# Who is let in.


@pytest.mark.parametrize(
    "header", ["x-api-key", "X-API-Key", "api-key", "X-Rapid-API-Key", "secret"]
)
async def test_a_key_is_taken_in_the_spellings_of_clients(house: House, header: str) -> None:
    answer = await house.http.post(CHATS, json=CHAT, headers={header: secret_of("alice")})
    assert answer.status_code == 200, answer.text
    assert (await chat(house, "alice")).status_code == 200


async def test_without_a_key_the_answer_says_how_to_send_one(house: House) -> None:
    answer = await house.http.post(CHATS, json=CHAT)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="cohabit"'
    assert answer.headers["x-request-id"]
    error = error_of(answer)
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
    assert "authorization: Bearer" in error["message"]
    assert house.peers.happened == []


@pytest.mark.parametrize("name", ["nobody", "old", "off"])
async def test_a_key_that_is_not_taken(house: House, name: str) -> None:
    answer = await chat(house, name)
    assert (answer.status_code, error_of(answer)["code"]) == (401, "invalid_api_key")
    assert ("expired" in answer.text) == (name == "old")
    assert name not in answer.text
    assert house.peers.happened == []


@pytest.mark.parametrize("path", ["/", "/health", "/readyz", "/docs", "/openapi.json"])
async def test_what_needs_no_key(house: House, path: str) -> None:
    assert (await house.http.get(path)).status_code == 200


async def test_what_the_page_of_routes_loads_needs_no_key(house: House) -> None:
    page = (await house.http.get("/docs")).text
    for file in ("swagger-ui-bundle.js", "swagger-ui.css"):
        assert f"docs/{file}" in page
        assert (await house.http.get(f"/docs/{file}")).status_code == 200


async def test_every_other_route_needs_one(house: House) -> None:
    paths = (await house.http.get("/openapi.json")).json()["paths"]
    forwarded = {"x-forwarded-for": "127.0.0.1"}
    asked = 0
    for path, operations in paths.items():
        for method in operations:
            where = path.replace("{", "").replace("}", "")
            answer = await house.http.request(method, where, headers=forwarded)
            if path in ("/", "/health", "/readyz"):
                continue
            wanted = 403 if path.startswith("/v1/admin/") else 401
            assert answer.status_code == wanted, (method, path)
            asked += 1
    assert asked > 15


async def test_the_documentation_tells_what_asks_for_a_key(tmp_path: Path, house: House) -> None:
    told = (await house.http.get("/openapi.json")).json()
    assert "x-api-key" in told["info"]["description"]
    assert "No key is needed" not in told["info"]["description"]
    asks: Any = [{"bearer": []}, {"x-api-key": []}]
    chat, message = (told["paths"][it]["post"] for it in (CHATS, "/v1/messages"))
    assert chat["security"] == message["security"] == asks
    assert told["paths"]["/health"]["get"]["security"] == []
    assert told["paths"]["/v1/admin/models"]["get"]["security"] == []
    assert "AnthropicError" in str(message["responses"]["401"])
    assert {"401", "403", "429"} <= told["paths"]["/metrics"]["get"]["responses"].keys()
    (folder := tmp_path / "open").mkdir()
    async with opened(folder) as open_house:
        told = (await open_house.http.get("/openapi.json")).json()
        assert "securitySchemes" not in told["components"]
        assert "No key is needed" in told["info"]["description"]


async def test_open_mode_passes_keys_over(tmp_path: Path) -> None:
    async with opened(tmp_path) as house:
        for headers in ({}, bearing("anybody"), {"x-api-key": "a", "api-key": "b"}):
            answer = await house.http.post(CHATS, json=CHAT, headers=headers)
            assert answer.status_code == 200


@pytest.mark.parametrize("text", [None, "", "# nobody yet\n"])
async def test_a_house_without_keys_says_how_to_make_one(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "keys.yaml"
    if text is not None:
        file.write_text(text)
    async with opened(tmp_path, keys_file=file) as house:
        answer = await house.http.post(CHATS, json=CHAT, headers=bearing("alice"))
        assert answer.status_code == 401
        assert "cohabit keys add NAME" in error_of(answer)["message"]
        assert (await house.http.get("/health")).json()["status"] == "ok"


# As whom.


async def test_the_tier_is_lowered_to_the_keys_ceiling(house: House) -> None:
    wish = {"x-cohabit-tier": "paid"}
    for name in ("alice", "bob", "both"):
        assert await chat(house, name, model="pair" if name == "both" else MODEL, headers=wish)
    tiers = [admit.tier for admit in house.peers.admits]
    assert tiers == [common_pb2.TIER_SUB, common_pb2.TIER_FREE, common_pb2.TIER_PAID]
    assert (await chat(house, "alice", headers={"x-cohabit-tier": "gold"})).status_code == 400


async def test_a_key_shares_by_its_own_name_whatever_it_claims(house: House) -> None:
    for name in ("alice", "bob"):
        for claimed in ({}, {"x-cohabit-key": "somebody"}, {"x-cohabit-key": "x" * 200}):
            assert (await chat(house, name, headers=claimed)).status_code == 200
    assert [admit.fairness_key for admit in house.peers.admits] == ["alice"] * 3 + ["team"] * 3
    # Caches are not shared among keys of one team: their owners are told apart by them.
    assert [it.cache_scope for it in house.peers.generates] == ["alice"] * 3 + ["bob"] * 3


# To what.


async def test_a_model_that_is_not_for_a_key(house: House) -> None:
    answer = await chat(house, "bob", model="big")
    assert answer.status_code == 403
    error = error_of(answer)
    assert (error["code"], error["param"]) == ("model_not_allowed", "model")
    assert house.peers.happened == []
    # Whether there is one is told to nobody who may not ask for it.
    unknown = await chat(house, "bob", model="nothing")
    assert unknown.text == answer.text.replace("big", "nothing")
    assert unknown.status_code == 403


@pytest.mark.parametrize(
    ("name", "wish", "status"),
    [
        ("alice", "pair", 200),
        ("bob", "twins", 200),
        ("bob", "twins-a", 200),
        ("one", "pair-a", 200),
        ("one", "pair-b", 403),
        ("one", "pair", 403),  # any of the twins might serve
        ("both", "pair", 200),
        ("both", "twins", 403),
        ("watcher", MODEL, 403),
    ],
)
async def test_families_are_for_who_may_ask_all_of_them(
    house: House, name: str, wish: str, status: int
) -> None:
    assert (await chat(house, name, model=wish)).status_code == status
    assert ("admit" in house.peers.happened) == (status == 200)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/responses", {"input": "x"}),
        ("/v1/messages", {"max_tokens": 1, "messages": CHAT["messages"]}),
        ("/v1/messages/count_tokens", {"messages": CHAT["messages"]}),
        ("/v1/embeddings", {"input": "x"}),
        ("/v1/rerank", {"query": "x", "documents": ["y"]}),
        ("/tokenize", {"content": "x"}),
        ("/detokenize", {"tokens": [1]}),
    ],
)
async def test_no_route_goes_around_it(house: House, path: str, body: Any) -> None:
    answer = await house.http.post(path, json=body | {"model": "big"}, headers=bearing("bob"))
    assert answer.status_code == 403, answer.text
    assert "model_not_allowed" in answer.text
    assert house.peers.happened == []
    assert house.peers.counts == []


async def test_lists_show_what_a_key_may_ask(house: House) -> None:
    async def listed(name: str, **headers: str) -> set[str]:
        answer = await house.http.get("/v1/models", headers=bearing(name) | headers)
        return {it["id"] for it in answer.json()["data"]}

    assert await listed("bob") == {MODEL, "twins", "twins-a", "twins-b"}
    assert await listed("one", **{"anthropic-version": "2023-06-01"}) == {"pair-a"}
    assert await listed("both") == {"pair", "pair-a", "pair-b"}
    assert len(await listed("alice")) == 8
    for name, status in (("alice", 200), ("bob", 403)):
        answer = await house.http.get("/v1/models/big", headers=bearing(name))
        assert answer.status_code == status
    answer = await house.http.get("/v1/models/nothing", headers=bearing("alice"))
    assert answer.status_code == 404


# What it made.


@pytest.mark.parametrize(("owner", "model"), [("alice", MODEL), ("one", "pair-a")])
async def test_a_stored_response_is_for_its_key_alone(house: House, owner: str, model: str) -> None:
    """Also when the keys share capacity, as those of `one` and `bob` do."""
    body = {"model": model, "input": "Hello"}
    made = (await house.http.post("/v1/responses", json=body, headers=bearing(owner))).json()
    path, thief = f"/v1/responses/{made['id']}", bearing("bob") | {"x-cohabit-key": owner}
    for method, where in (
        ("GET", path),
        ("GET", f"{path}/input_items"),
        ("POST", f"{path}/cancel"),
        ("DELETE", path),
    ):
        answer = await house.http.request(method, where, headers=thief)
        assert (answer.status_code, error_of(answer)["code"]) == (404, "response_not_found")
    more = body | {"previous_response_id": made["id"]}
    answer = await house.http.post("/v1/responses", json=more | {"model": MODEL}, headers=thief)
    assert (answer.status_code, len(house.peers.admits)) == (400, 1)
    assert (await house.http.get(path, headers=bearing(owner))).status_code == 200
    answer = await house.http.post("/v1/responses", json=more, headers=bearing(owner))
    assert answer.status_code == 200


# How much.


async def test_a_key_makes_so_many_requests_a_minute(house: House) -> None:
    for left in ("1", "0"):
        answer = await chat(house, "slow")
        assert answer.status_code == 200
        assert answer.headers["x-ratelimit-limit-requests"] == "2"
        assert answer.headers["x-ratelimit-remaining-requests"] == left
    answer = await chat(house, "slow")
    assert answer.status_code == 429
    assert error_of(answer)["code"] == "rate_limit_exceeded"
    assert 29 <= int(answer.headers["retry-after"]) <= 30
    assert 29_000 < int(answer.headers["retry-after-ms"]) <= 30_000
    assert answer.headers["x-ratelimit-remaining-requests"] == "0"
    assert 59 < float(answer.headers["x-ratelimit-reset-requests"].removesuffix("s")) <= 60
    assert len(house.peers.admits) == 2
    assert (await chat(house, "alice")).status_code == 200


async def test_a_key_has_so_many_requests_in_progress(house: House) -> None:
    house.peers.generate = house.peers.says_and_hangs
    first = asyncio.create_task(chat(house, "single"))
    await house.peers.seen("generate")
    answer = await chat(house, "single")
    assert (answer.status_code, error_of(answer)["code"]) == (429, "rate_limit_exceeded")
    assert "x-ratelimit-limit-requests" not in answer.headers
    first.cancel()
    await house.peers.seen("generate over")
    house.peers.generate = house.peers.says_hello
    async with asyncio.timeout(DEADLINE_S):
        while (await chat(house, "single")).status_code != 200:
            pass  # the edge hears by TCP that the first has gone


async def test_a_refused_request_gives_its_place_back(house: House) -> None:
    for body in ({"model": "nothing"}, {"messages": 7}, {"temperature": "hot"}):
        assert (await chat(house, "single", **body)).status_code in (200, 400, 404)
    for _ in range(3):
        assert (await chat(house, "single")).status_code == 200


# What the house tells of itself.


@pytest.mark.parametrize("path", ["/metrics", "/status"])
async def test_signals_are_for_the_machine_and_for_those_who_may(house: House, path: str) -> None:
    forwarded = {"x-forwarded-for": "127.0.0.1"}
    assert (await house.http.get(path)).status_code == 200
    assert (await house.http.get(path, headers=forwarded)).status_code == 401
    answer = await house.http.get(path, headers=forwarded | bearing("alice"))
    assert (answer.status_code, error_of(answer)["code"]) == (403, "local_only")
    answer = await house.http.get(path, headers=forwarded | bearing("watcher"))
    assert answer.status_code == 200


async def test_admin_routes_ask_for_the_machine_and_no_key(house: House) -> None:
    forwarded = bearing("alice") | {"x-forwarded-for": "127.0.0.1"}
    answer = await house.http.get("/v1/admin/models", headers=forwarded)
    assert (answer.status_code, error_of(answer)["code"]) == (403, "local_only")
    assert (await house.http.get("/v1/admin/models")).status_code == 200


# The official clients.


async def test_openais_client_maps_the_refusals(house: House) -> None:
    def client(name: str) -> openai.AsyncOpenAI:
        return house.openai.with_options(api_key=secret_of(name))

    answer = await client("bob").chat.completions.create(**CHAT)
    assert answer.choices[0].message.content == "Hello"
    with pytest.raises(openai.AuthenticationError) as unknown:
        await client("nobody").chat.completions.create(**CHAT)
    assert unknown.value.code == "invalid_api_key"
    with pytest.raises(openai.PermissionDeniedError) as forbidden:
        await client("bob").chat.completions.create(**(CHAT | {"model": "big"}))
    assert forbidden.value.code == "model_not_allowed"
    for _ in range(2):
        await client("slow").models.list()
    with pytest.raises(openai.RateLimitError) as often:
        await client("slow").models.list()
    assert often.value.code == "rate_limit_exceeded"


async def test_anthropics_client_maps_the_refusals(house: House) -> None:
    asked: Any = {"model": MODEL, "max_tokens": 9, "messages": CHAT["messages"]}
    async with client_of(house) as nobody:
        bob = nobody.with_options(api_key=secret_of("bob"))
        answer = await bob.messages.create(**asked)
        assert answer.content[0].type == "text"
        with pytest.raises(anthropic.AuthenticationError) as unknown:
            await nobody.messages.create(**asked)
        body: Any = unknown.value.body
        assert body["error"]["type"] == "authentication_error"
        assert unknown.value.request_id
        with pytest.raises(anthropic.PermissionDeniedError):
            await bob.messages.create(**(asked | {"model": "big"}))


async def test_anthropics_client_may_bear_its_key(house: House) -> None:
    async with anthropic.AsyncAnthropic(
        base_url=house.url,
        auth_token=secret_of("bob"),
        http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False),
    ) as client:
        assert (await client.models.list()).data[0].id == MODEL
