"""Clients of the edge: a request by HTTP, and the one end that it has."""

import asyncio
import json
import time
from typing import Any

import httpx

from chassis.errors import TABLE, Reason
from tests.integration.chaos_wishes import DEADLINE_S, End, Wish

_REASONS = {row.openai_code: reason for reason, row in TABLE.items() if row.openai_code}
_DONE = "[DONE]"


def caller(url: str) -> httpx.AsyncClient:
    """What calls the edge for any number of clients; deadlines are theirs."""
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=url, timeout=None, limits=limits, trust_env=False)


async def ask(http: httpx.AsyncClient, wish: Wish) -> End:
    """Ask for it, and wait for its end or hang up."""
    began = time.monotonic()
    patience_s = DEADLINE_S if wish.hang_up_s is None else wish.hang_up_s
    try:
        async with asyncio.timeout(patience_s):
            how = await (_stream(http, wish) if wish.way == "stream" else _whole(http, wish))
    except TimeoutError:
        if wish.hang_up_s is None:
            how = End(wish, "wrong", f"no end within {DEADLINE_S} s")
        else:
            how = End(wish, "hung up")
    except httpx.HTTPError as error:  # the edge itself is never killed
        how = End(wish, "wrong", f"cut off: {error!r}")
    return End(wish, how.how, how.reason, time.monotonic() - began)


async def _whole(http: httpx.AsyncClient, wish: Wish) -> End:
    path, body = _asked(wish)
    answer = await http.post(path, json=body, headers=_headers(wish))
    told = answer.json()
    if answer.status_code != 200:
        return _refused(wish, answer.status_code, told)
    right = _is_right_chat(wish, told) if wish.way == "chat" else told["model"] in wish.serves
    return End(wish, "complete") if right else End(wish, "wrong", f"answered {told}")


async def _stream(http: httpx.AsyncClient, wish: Wish) -> End:
    path, body = _asked(wish)
    async with http.stream("POST", path, json=body, headers=_headers(wish)) as answer:
        if answer.status_code != 200:
            await answer.aread()
            return _refused(wish, answer.status_code, answer.json())
        lines = [line async for line in answer.aiter_lines() if line.startswith("data: ")]
    events = [line.removeprefix("data: ") for line in lines]
    ends = [at for at, event in enumerate(events) if event == _DONE or '"error"' in event[:9]]
    if ends != [len(events) - 1]:
        return End(wish, "wrong", f"{len(ends)} ends in {events[-3:]}")
    if events[-1] != _DONE:
        return End(wish, "broken", _reason(json.loads(events[-1])))
    chunks = [json.loads(event) for event in events[:-1]]
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    if text != wish.words or chunks[-1]["model"] not in wish.serves:
        return End(wish, "wrong", f"{chunks[-1]['model']} said {text!r}")
    return End(wish, "complete")


def _asked(wish: Wish) -> tuple[str, dict[str, Any]]:
    if wish.way == "run":
        return "/v1/simulated/runs", {"model": wish.model, "work_ms": wish.work_ms}
    return "/v1/chat/completions", {
        "model": wish.model,
        "messages": [{"role": "user", "content": "How are you?"}],
        "max_tokens": wish.max_tokens,
        "ignore_eos": True,
        "stream": wish.way == "stream",
    }


def _headers(wish: Wish) -> dict[str, str]:
    named = {"x-cohabit-key": wish.key} if wish.key else {}
    return {"x-request-id": wish.id, "x-cohabit-tier": wish.tier, **named}


def _is_right_chat(wish: Wish, told: dict[str, Any]) -> bool:
    choice = told["choices"][0]
    return choice["message"]["content"] == wish.words and told["model"] in wish.serves


def _refused(wish: Wish, status: int, told: dict[str, Any]) -> End:
    reason = _reason(told)
    if reason in _REASONS.values() and TABLE[Reason(reason)].http != status:
        return End(wish, "wrong", f"{status} for {reason}")
    return End(wish, "refused", reason)


def _reason(told: dict[str, Any]) -> str:
    code = told["error"]["code"]
    return str(_REASONS.get(code, told["error"]))
