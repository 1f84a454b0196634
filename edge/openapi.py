"""/openapi.json made true: the schemas come from the structs that decode and encode the bodies."""

from typing import Any, Literal

import msgspec

from edge.catalog import Health, ModelList, ModelObject
from edge.chat_body import ChatBody
from edge.chat_response import ChatCompletion, ChatCompletionChunk
from edge.errors import ErrorEnvelope
from edge.tier import HEADER, TIERS

CHAT_PATH = "/v1/chat/completions"
DESCRIPTION = """Many models living on one GPU, for clients that talk to OpenAI.

A model is loaded when it is first asked for; requests wait their turn by tier, which the header
`x-cohabit-tier` names. Every answer that is an error has the same body: `message` is for people,
`code` for machines, and `retry-after` is set where waiting helps. No key is needed. A field that
is not supported is refused by name.
"""
TAGS = [
    {"name": "chat", "description": "Conversations, in OpenAI's dialect."},
    {"name": "models", "description": "What can be asked for."},
    {"name": "probes", "description": "For whoever watches over the house."},
    {"name": "docs", "description": "Where to read on."},
]


class Welcome(msgspec.Struct):
    """What there is here, for who asks without a path."""

    version: str
    docs: str
    openapi: str
    service: Literal["cohabit"] = "cohabit"


_TYPES = (ChatBody, ChatCompletion, ChatCompletionChunk, ModelList, ModelObject, Health, Welcome)
_REF = "#/components/schemas/{name}"
_FAILURES = {
    "400": "The request is wrong; `param` names the field.",
    "404": "There is no such model.",
    "413": "The body is too large.",
    "429": "The queue is full; `retry-after` says when to try again.",
    "503": "It cannot be served now; `retry-after` says when to try again.",
}


def ref(kind: type) -> dict[str, str]:
    """Reference to the schema of a body type."""
    return {"$ref": _REF.format(name=kind.__name__)}


def answers(kind: type, description: str, *failures: int) -> dict[int | str, dict[str, Any]]:
    """A route's `responses` when it answers 200 with `kind`, or one of `failures`."""
    told: dict[int | str, dict[str, Any]] = {200: _json(kind, description)}
    for status in failures:
        told[status] = _json(ErrorEnvelope, _FAILURES[str(status)])
    return told


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """Add the bodies' schemas and the routes that FastAPI does not know of."""
    _, schemas = msgspec.json.schema_components((*_TYPES, ErrorEnvelope), ref_template=_REF)
    document.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
    document["paths"] = {CHAT_PATH: {"post": _chat()}, **document["paths"]}
    _forget_validation(document)
    return document


def _forget_validation(document: dict[str, Any]) -> None:
    # FastAPI announces a 422 of its own for every route with a parameter; none is ever sent.
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)


def _json(kind: type, description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": ref(kind)}}}


def _chat() -> dict[str, Any]:
    done = _json(ChatCompletion, "The answer; with `stream: true`, server-sent events.")
    done["content"]["text/event-stream"] = {"schema": ref(ChatCompletionChunk)}
    failures = {status: _json(ErrorEnvelope, why) for status, why in _FAILURES.items()}
    body = {"required": True, "content": {"application/json": {"schema": ref(ChatBody)}}}
    return {
        "tags": ["chat"],
        "summary": "Answer a conversation",
        "operationId": "create_chat_completion",
        "parameters": [
            {
                "name": HEADER,
                "in": "header",
                "required": False,
                "description": "How urgent it is; lowered to what the caller may have.",
                "schema": {"type": "string", "enum": list(TIERS)},
            }
        ],
        "requestBody": body,
        "responses": {"200": done, **failures},
    }
