"""/openapi.json made true: the schemas come from the structs that decode and encode the bodies."""

from collections.abc import Collection
from typing import Any, Literal

import msgspec

from edge import fairness, tier
from edge.anthropic.body import CountTokensBody, MessagesBody
from edge.anthropic.count import TokenCount
from edge.anthropic.events import STREAM_EVENTS
from edge.anthropic.models import MOST_LIMIT, USUAL_LIMIT, ModelInfo, ModelPage
from edge.anthropic.response import MessageAnswer
from edge.anthropic.words import AnthropicError
from edge.catalog import Health, ModelList, ModelObject
from edge.chat_body import ChatBody
from edge.chat_response import ChatCompletion, ChatCompletionChunk
from edge.simulated import RunAnswer, RunBody
from edge.speech import ErrorEnvelope

CHAT_PATH = "/v1/chat/completions"
MESSAGES_PATH = "/v1/messages"
COUNT_PATH = "/v1/messages/count_tokens"
RUNS_PATH = "/v1/simulated/runs"
DESCRIPTION = """Many models living on one GPU, for clients of OpenAI and Anthropic.

A model is loaded when it is first asked for; requests wait their turn by tier, which the header
`x-cohabit-tier` names, and within a tier clients share by the name that each gives itself in
`x-cohabit-key`. Every answer that is an error has the body of its dialect: `message` is for
people, `code` or `error_code` for machines, and `retry-after` is set where waiting helps. No key is
needed. A field that is not supported is refused by name.
"""
_TAGS = [
    {"name": "chat", "description": "Conversations, in OpenAI's dialect."},
    {"name": "messages", "description": "Conversations, in Anthropic's dialect."},
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


_SIMULATED_TAG = {
    "name": "simulated",
    "description": "Pretended work on models that are not there, with real waiting for a turn.",
}
_TYPES = (ChatBody, ChatCompletion, ChatCompletionChunk, ModelList, ModelObject, Health, Welcome)
_ANTHROPIC_TYPES = (
    MessagesBody,
    CountTokensBody,
    MessageAnswer,
    *STREAM_EVENTS,
    TokenCount,
    ModelPage,
    ModelInfo,
    AnthropicError,
)
_RUN_TYPES = (RunBody, RunAnswer)
_REF = "#/components/schemas/{name}"
Kinds = type | tuple[type, ...]
_FAILURES = {
    "400": "The request is wrong; the message names the field.",
    "404": "There is no such model.",
    "413": "The body is too large.",
    "429": "The queue is full; `retry-after` says when to try again.",
    "503": "It cannot be served now; `retry-after` says when to try again.",
}


def ref(kind: Kinds) -> dict[str, Any]:
    """Reference to the schema of a body type, or to each of several."""
    if isinstance(kind, type):
        return {"$ref": _REF.format(name=kind.__name__)}
    return {"anyOf": [ref(one) for one in kind]}


def answers(kind: Kinds, description: str, *failures: int) -> dict[int | str, dict[str, Any]]:
    """A route's `responses` when it answers 200 with `kind`, or one of `failures`.

    Several kinds: one for each dialect, and so are the failures.
    """
    told: dict[int | str, dict[str, Any]] = {200: _json(kind, description)}
    envelope = ErrorEnvelope if isinstance(kind, type) else (ErrorEnvelope, AnthropicError)
    for status in failures:
        told[status] = _json(envelope, _FAILURES[str(status)])
    return told


def tags(raw_paths: Collection[str]) -> list[dict[str, str]]:
    """The groups of routes, in the page's order."""
    return [*_TAGS[:2], _SIMULATED_TAG, *_TAGS[2:]] if RUNS_PATH in raw_paths else _TAGS


def complete(document: dict[str, Any], raw_paths: Collection[str]) -> dict[str, Any]:
    """Add the bodies' schemas and the routes that FastAPI does not know of."""
    types = (
        *_TYPES,
        *_ANTHROPIC_TYPES,
        *(_RUN_TYPES if RUNS_PATH in raw_paths else ()),
        ErrorEnvelope,
    )
    _, schemas = msgspec.json.schema_components(types, ref_template=_REF)
    document.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
    told = {CHAT_PATH: _chat, MESSAGES_PATH: _messages, COUNT_PATH: _count, RUNS_PATH: _runs}
    raw = {path: {"post": told[path]()} for path in raw_paths}
    document["paths"] = {**raw, **document["paths"]}
    _forget_validation(document)
    return document


def _forget_validation(document: dict[str, Any]) -> None:
    # FastAPI announces a 422 of its own for every route with a parameter; none is ever sent.
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)


def _json(kind: Kinds, description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": ref(kind)}}}


def _chat() -> dict[str, Any]:
    done = _json(ChatCompletion, "The answer; with `stream: true`, server-sent events.")
    done["content"]["text/event-stream"] = {"schema": ref(ChatCompletionChunk)}
    return {
        "tags": ["chat"],
        "summary": "Answer a conversation",
        "operationId": "create_chat_completion",
        **_posted(ChatBody, done),
    }


def _messages() -> dict[str, Any]:
    done = _json(MessageAnswer, "The answer; with `stream: true`, server-sent events.")
    done["content"]["text/event-stream"] = {"schema": ref((*STREAM_EVENTS, AnthropicError))}
    return {
        "tags": ["messages"],
        "summary": "Answer a conversation",
        "operationId": "create_message",
        **_posted(MessagesBody, done, AnthropicError),
    }


def _count() -> dict[str, Any]:
    return {
        "tags": ["messages"],
        "summary": "Count the tokens of a prompt",
        "description": "As the model would see it; a model that is not loaded stays so.",
        "operationId": "count_message_tokens",
        **_posted(CountTokensBody, _json(TokenCount, "Its length."), AnthropicError),
    }


def _runs() -> dict[str, Any]:
    return {
        "tags": ["simulated"],
        "summary": "Pretend to work on a simulated model",
        "description": "Nothing is computed: memory of the simulated card is held for a while.",
        "operationId": "create_simulated_run",
        **_posted(RunBody, _json(RunAnswer, "The work is over.")),
    }


def _posted(kind: type, done: dict[str, Any], envelope: type = ErrorEnvelope) -> dict[str, Any]:
    """What a route to a model takes and answers: body, headers, failures."""
    failures = {status: _json(envelope, why) for status, why in _FAILURES.items()}
    return {
        "parameters": [
            _header(
                tier.HEADER,
                "How urgent it is; lowered to what the caller may have.",
                {"type": "string", "enum": list(tier.TIERS)},
            ),
            _header(
                fairness.HEADER,
                "Whose it is: within a tier, those who ask are served in turn.",
                {"type": "string", "minLength": 1, "maxLength": fairness.MOST_CHARS},
            ),
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": ref(kind)}},
        },
        "responses": {"200": done, **failures},
    }


def _header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return _parameter("header", name, description, schema)


def _parameter(place: str, name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": False,
        "description": description,
        "schema": schema,
    }


_VERSION = _header(
    "anthropic-version", "Of any value: answer in Anthropic's shape.", {"type": "string"}
)
_CURSORS = {"after_id": "The page behind this name.", "before_id": "The page before this name."}
_LIMIT = {"type": "integer", "minimum": 1, "maximum": MOST_LIMIT, "default": USUAL_LIMIT}
_STAGES = {"type": "array", "items": {"type": "string"}}
SPOKEN = {"parameters": [_VERSION]}
"""Of a route that speaks two dialects."""
PAGED = {
    "parameters": [
        _VERSION,
        _parameter("query", "limit", "Most models of a page, in Anthropic's shape.", _LIMIT),
        *(_parameter("query", name, why, {"type": "string"}) for name, why in _CURSORS.items()),
        _parameter("query", "lifecycle[]", "Stages of life; here all are active.", _STAGES),
    ]
}
"""Of one that answers in pages, too."""
