"""The requests of a soak: one short one of each kind that clients send, and what each must get."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

CHAT = "/v1/chat/completions"
Body = Callable[[str], Mapping[str, Any]]

_SUBJECTS = (
    "the sea and the moon", "a lighthouse", "bread", "bicycles", "Lisbon", "trains and ships",
    "learning to program", "two families of Verona",
)  # fmt: skip
_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
_TOOL = {"name": "weather", "parameters": {"type": "object", "properties": {"city": _SCHEMA}}}
_CALLED = [{"type": "function", "function": _TOOL}]
_NAMED = {"type": "json_schema", "json_schema": {"name": "person", "schema": _SCHEMA}}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request."""

    name: str
    path: str
    body: Body
    """Of a text that no other request has."""
    status: int = 200
    hangs_up_after: int = 0
    """Pieces of the answer, after which its client is gone; 0: it stays to the end."""


def _chat(**more: Any) -> Body:
    def body(text: str) -> Mapping[str, Any]:
        turns = [{"role": "user", "content": text}]
        return {"model": WRITER, "messages": turns, "max_tokens": 12} | more

    return body


def _of(field: str, **more: Any) -> Body:
    return lambda text: {"model": WRITER, field: text} | more


WRITER, EMBEDDER, RANKER = "smollm2", "bert", "rank"
KINDS = (
    Kind("chat", CHAT, _chat()),
    Kind("chat, streamed", CHAT, _chat(stream=True, stream_options={"include_usage": True})),
    Kind("tools", CHAT, _chat(tools=_CALLED, tool_choice="required", stream=True)),
    Kind("json_schema", CHAT, _chat(response_format=_NAMED)),
    Kind("two choices", CHAT, _chat(n=2, temperature=1.0)),
    Kind("logprobs", CHAT, _chat(logprobs=True, top_logprobs=5)),
    Kind("stop strings", CHAT, _chat(stop=["the", "."])),
    Kind("hangs up", CHAT, _chat(stream=True, max_tokens=400, ignore_eos=True), hangs_up_after=3),
    Kind("hangs up at once", CHAT, _chat(max_tokens=400, stream=True), hangs_up_after=1),
    Kind("completion", "/v1/completions", _of("prompt", max_tokens=12)),
    Kind("response", "/v1/responses", _of("input", max_output_tokens=12)),
    Kind("response, streamed", "/v1/responses", _of("input", max_output_tokens=12, stream=True)),
    Kind("message", "/v1/messages", _chat()),
    Kind("message, streamed", "/v1/messages", _chat(stream=True)),
    Kind("embedding", "/v1/embeddings", lambda text: {"model": EMBEDDER, "input": [text] * 4}),
    Kind("rerank", "/v1/rerank", lambda text: {
        "model": RANKER, "query": text, "documents": list(_SUBJECTS),
    }),
    Kind("tokens", "/tokenize", _of("content", with_pieces=True)),
    Kind("invalid", CHAT, _chat(temperature=9), status=400),
    Kind("impossible", CHAT, _chat(response_format={
        "type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {}}},
    }), status=400),
    Kind("unknown model", CHAT, _chat(model="nobody"), status=404),
)  # fmt: skip


def text_of(number: int) -> str:
    """Other words for every request, with the beginning in common."""
    return f"Request {number}. Say a few words about {_SUBJECTS[number % len(_SUBJECTS)]}."


def complaint(kind: Kind, status: int, body: str) -> str:
    """What is wrong with an answer, in a sentence; empty: nothing."""
    if status != kind.status:
        return f"{kind.name}: answered {status} instead of {kind.status}: {body[:300]}"
    if status == 200 and body.startswith(("data:", "event:", ":")) and _has_error(body):
        return f"{kind.name}: its stream has an error: {body[-300:]}"
    return ""


def _has_error(stream: str) -> bool:
    told = (line.removeprefix("data: ") for line in stream.splitlines())
    events = (json.loads(line) for line in told if line.startswith("{"))
    return any(event.get("error") or event.get("type") == "error" for event in events)
