"""/openapi.json made true: the schemas come from the structs that decode and encode the bodies."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Literal

import msgspec

from edge import embeddings, fairness, house_views, rerank, tier, tokenize
from edge.catalog import Health, ModelList, ModelObject
from edge.chat_body import ChatBody
from edge.chat_response import ChatCompletion, ChatCompletionChunk
from edge.completions_body import Completion, CompletionBody, EngineBody
from edge.config import LegacyRoute
from edge.legacy import PATHS
from edge.legacy_body import GenerateBody, Generated, SummarizationBody, Summary
from edge.responses.body import INPUT_ITEMS, ResponsesBody, ResponseTool
from edge.responses.objects import (
    ResponseDeleted,
    ResponseEvent,
    ResponseItemList,
    ResponseObject,
)
from edge.simulated import RunAnswer, RunBody
from edge.speech import ErrorEnvelope

CHAT_PATH = "/v1/chat/completions"
RESPONSES_PATH = "/v1/responses"
COMPLETIONS_PATH = "/v1/completions"
RUNS_PATH = "/v1/simulated/runs"
DESCRIPTION = """Many models living on one GPU, for clients that talk to OpenAI.

A model is loaded when it is first asked for; requests wait their turn by tier, which the header
`x-cohabit-tier` names, and within a tier clients share by the name that each gives itself in
`x-cohabit-key`. Every answer that is an error has the same body: `message` is for people,
`code` for machines, and `retry-after` is set where waiting helps. No key is needed. A field that
is not supported is refused by name.
"""
_TAGS = [
    {"name": "chat", "description": "Conversations, in OpenAI's dialect."},
    {"name": "responses", "description": "The same in OpenAI's newer dialect, kept for a while."},
    {"name": "completions", "description": "Bare prompts, in OpenAI's dialect."},
    {"name": "vectors", "description": "Embeddings, and documents ranked by relevance."},
    {"name": "tokens", "description": "Texts as models read them."},
    {"name": "models", "description": "What can be asked for."},
    {"name": "probes", "description": "For whoever watches over the house."},
    {"name": "admin", "description": "For whoever runs the house, on the machine itself."},
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
_LEGACY_TAG = {
    "name": "legacy",
    "description": "Text routes of former APIs; any name that is no model's is the route's own.",
}
_TYPES: tuple[type, ...] = (
    *house_views.TYPES,
    *(ChatBody, ChatCompletion, ChatCompletionChunk, CompletionBody, Completion),
    *(ResponsesBody, *INPUT_ITEMS, ResponseTool, ResponseObject, ResponseEvent),
    *(ResponseDeleted, ResponseItemList, ModelList, ModelObject, Health, Welcome),
    *(embeddings.EmbeddingBody, embeddings.EmbeddingList, rerank.RerankBody, rerank.RerankAnswer),
    *(tokenize.TokenizeBody, tokenize.TokenizeAnswer),
    *(tokenize.DetokenizeBody, tokenize.DetokenizeAnswer),
)
_RUN_TYPES = (RunBody, RunAnswer)
_LEGACY_TYPES = (GenerateBody, Generated, SummarizationBody, Summary, EngineBody, Completion)
_LEGACY_PATHS = frozenset(PATHS.values())
_REF = "#/components/schemas/{name}"
_FAILURES = {
    "400": "The request is wrong; `param` names the field.",
    "403": "The route is for the machine itself.",
    "404": "There is no such model, or nothing of that name.",
    "409": "The model is busy.",
    "413": "The body is too large.",
    "429": "The queue is full; `retry-after` says when to try again.",
    "501": "This house does not offer it.",
    "503": "It cannot be served now; `retry-after` says when to try again.",
}


_ASKED = ("400", "404", "413", "429", "503")
"""How a request for a model may fail."""


def ref(kind: type) -> dict[str, str]:
    """Reference to the schema of a body type."""
    return {"$ref": _REF.format(name=kind.__name__)}


def answers(kind: type, description: str, *failures: int) -> dict[int | str, dict[str, Any]]:
    """A route's `responses` when it answers 200 with `kind`, or one of `failures`."""
    told: dict[int | str, dict[str, Any]] = {200: _json(kind, description)}
    for status in failures:
        told[status] = _json(ErrorEnvelope, _FAILURES[str(status)])
    return told


def takes(kind: type, *, required: bool = True) -> dict[str, Any]:
    """What a route reads that FastAPI does not read for it."""
    content = {"application/json": {"schema": ref(kind)}}
    return {"requestBody": {"required": required, "content": content}}


def tags(raw_paths: Collection[str]) -> list[dict[str, str]]:
    """The groups of routes, in the page's order."""
    told = list(_TAGS)
    if RUNS_PATH in raw_paths:
        told.insert(1, _SIMULATED_TAG)
    if not _LEGACY_PATHS.isdisjoint(raw_paths):
        told.append(_LEGACY_TAG)
    return told


def complete(document: dict[str, Any], raw_paths: Collection[str]) -> dict[str, Any]:
    """Add the bodies' schemas and the routes that FastAPI does not know of."""
    types = dict.fromkeys((*_TYPES, ErrorEnvelope))
    if RUNS_PATH in raw_paths:
        types |= dict.fromkeys(_RUN_TYPES)
    if not _LEGACY_PATHS.isdisjoint(raw_paths):
        types |= dict.fromkeys(_LEGACY_TYPES)
    if embeddings.FEATURES_PATH in raw_paths:
        types[embeddings.FeatureBody] = None
    _, schemas = msgspec.json.schema_components(types, ref_template=_REF)
    document.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
    told = {
        CHAT_PATH: _chat,
        COMPLETIONS_PATH: _completions,
        RESPONSES_PATH: _responses,
        RUNS_PATH: _runs,
        **_SINGLE,
        **_LEGACY,
    }
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


def _json(kind: type, description: str) -> dict[str, Any]:
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


def _responses() -> dict[str, Any]:
    done = _json(ResponseObject, "The response; with `stream: true`, server-sent events.")
    done["content"]["text/event-stream"] = {"schema": ref(ResponseEvent)}
    return {
        "tags": ["responses"],
        "summary": "Answer, and keep the answer",
        "operationId": "create_response",
        **_posted(ResponsesBody, done),
    }


def _completions() -> dict[str, Any]:
    return {
        "tags": ["completions"],
        "summary": "Complete a prompt",
        "operationId": "create_completion",
        **_posted(CompletionBody, _completed()),
    }


def _completed() -> dict[str, Any]:
    done = _json(Completion, "The answer; with `stream: true`, server-sent events.")
    done["content"]["text/event-stream"] = {"schema": ref(Completion)}
    return done


def _engine() -> dict[str, Any]:
    told = _legacy("engines", "Complete a prompt on an engine", EngineBody, _completed())
    engine = {"type": "string", "minLength": 1}
    told["parameters"].append({"name": "engine", "in": "path", "required": True, "schema": engine})
    return told


def _generates(route: LegacyRoute, summary: str) -> dict[str, Any]:
    done = _json(Generated, "The continuations.")
    media = done["content"]["application/json"]
    media["schema"] = {"type": "array", "items": media["schema"]}
    return _legacy(route, summary, GenerateBody, done)


def _legacy(route: LegacyRoute, summary: str, body: type, done: dict[str, Any]) -> dict[str, Any]:
    return {
        "tags": ["legacy"],
        "summary": summary,
        "operationId": f"legacy_{route}",
        **_posted(body, done),
    }


_LEGACY = {
    PATHS["generate"]: lambda: _generates("generate", "Continue a text"),
    PATHS["generate_large"]: lambda: _generates(
        "generate_large", "Continue a text on the larger model"
    ),
    PATHS["autocomplete"]: lambda: _generates("autocomplete", "Continue what is being typed"),
    PATHS["summarization"]: lambda: _legacy(
        "summarization",
        "Summarise a text",
        SummarizationBody,
        _json(Summary, "The summary."),
    ),
    PATHS["engines"]: _engine,
}


def _runs() -> dict[str, Any]:
    return {
        "tags": ["simulated"],
        "summary": "Pretend to work on a simulated model",
        "description": "Nothing is computed: memory of the simulated card is held for a while.",
        "operationId": "create_simulated_run",
        **_posted(RunBody, _json(RunAnswer, "The work is over.")),
    }


def _embeddings() -> dict[str, Any]:
    return {
        "tags": ["vectors"],
        "summary": "Embed texts",
        "operationId": "create_embedding",
        **_posted(embeddings.EmbeddingBody, _json(embeddings.EmbeddingList, "The vectors.")),
    }


def _features() -> dict[str, Any]:
    vector = {"type": "array", "items": {"type": "number"}}
    done = {
        "description": "The vector, or the beginning of it.",
        "content": {"application/json": {"schema": vector}},
    }
    return {
        "tags": ["vectors"],
        "summary": "Embed one text, as a former API has it",
        "operationId": "create_features",
        **_posted(embeddings.FeatureBody, done),
    }


def _rerank(version: str) -> dict[str, Any]:
    return {
        "tags": ["vectors"],
        "summary": "Rank documents by their relevance",
        "operationId": f"create_rerank_{version}",
        **_posted(rerank.RerankBody, _json(rerank.RerankAnswer, "The documents, best first.")),
    }


def _tokenize() -> dict[str, Any]:
    return {
        "tags": ["tokens"],
        "summary": "See the tokens of a text",
        "operationId": "tokenize",
        **_posted(tokenize.TokenizeBody, _json(tokenize.TokenizeAnswer, "The tokens.")),
    }


def _detokenize() -> dict[str, Any]:
    return {
        "tags": ["tokens"],
        "summary": "Turn tokens back into text",
        "operationId": "detokenize",
        **_posted(tokenize.DetokenizeBody, _json(tokenize.DetokenizeAnswer, "The text.")),
    }


_SINGLE: dict[str, Callable[[], dict[str, Any]]] = {
    embeddings.PATH: _embeddings,
    embeddings.FEATURES_PATH: _features,
    tokenize.PATH: _tokenize,
    tokenize.BACK_PATH: _detokenize,
    **{path: partial(_rerank, path.split("/")[1]) for path in rerank.PATHS},
}


def _posted(kind: type, done: dict[str, Any]) -> dict[str, Any]:
    """What a route to a model takes and answers: body, headers, failures."""
    failures = {status: _json(ErrorEnvelope, _FAILURES[status]) for status in _ASKED}
    return {
        "parameters": [
            _header(
                tier.HEADER,
                "How urgent it is; lowered to what the caller may have.",
                {"type": "string", "enum": list(tier.TIERS)},
            ),
            key_header(),
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": ref(kind)}},
        },
        "responses": {"200": done, **failures},
    }


def key_header() -> dict[str, Any]:
    """The header that says whose a request is."""
    return _header(
        fairness.HEADER,
        "Whose it is: within a tier, those who ask are served in turn; what is kept is theirs.",
        {"type": "string", "minLength": 1, "maxLength": fairness.MOST_CHARS},
    )


def paging(most: int) -> list[dict[str, Any]]:
    """The fields of a query for one page of a list of at most `most`."""
    schemas: dict[str, dict[str, Any]] = {
        "limit": {"type": "integer", "minimum": 1, "maximum": most},
        "order": {"type": "string", "enum": ["asc", "desc"]},
        "after": {"type": "string"},
    }
    return [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in schemas.items()
    ]


def _header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": schema,
    }
