"""The words in which /openapi.json tells of a route: schemas of bodies, failures, headers.

What each route takes and answers is said where the route is (FastAPI's own), in `described_text`
and in `described_more` (those that FastAPI does not know); `openapi` puts it all together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from edge import fairness, tier
from edge.anthropic.models import MOST_LIMIT, USUAL_LIMIT
from edge.anthropic.words import AnthropicError
from edge.speech import ErrorEnvelope

REF = "#/components/schemas/{name}"

Kinds = type | tuple[type, ...]
Operation = dict[str, Any]

_FAILURES: Mapping[str, str] = MappingProxyType(
    {
        "400": "The request is wrong; the message names the field.",
        "403": "The route is for the machine itself.",
        "404": "There is no such model, or nothing of that name.",
        "409": "The model is busy.",
        "413": "The body is too large.",
        "429": "The queue is full; `retry-after` says when to try again.",
        "501": "This house does not offer it.",
        "503": "It cannot be served now; `retry-after` says when to try again.",
    }
)
_ASKED = ("400", "404", "413", "429", "503")
"""How a request for a model may fail."""


@dataclass(frozen=True, slots=True)
class Described:
    """A route that FastAPI does not know: its operation, and the types that it refers to."""

    operation: Callable[[], Operation]
    types: tuple[type, ...]


def ref(kind: Kinds) -> dict[str, Any]:
    """Reference to the schema of a body type, or to each of several."""
    if isinstance(kind, type):
        return {"$ref": REF.format(name=kind.__name__)}
    return {"anyOf": [ref(one) for one in kind]}


def answers(kind: Kinds, description: str, *failures: int) -> dict[int | str, dict[str, Any]]:
    """A route's `responses` when it answers 200 with `kind`, or one of `failures`.

    Several kinds: one for each dialect, and so are the failures.
    """
    told: dict[int | str, dict[str, Any]] = {200: said(kind, description)}
    envelope = ErrorEnvelope if isinstance(kind, type) else (ErrorEnvelope, AnthropicError)
    for status in failures:
        told[status] = said(envelope, _FAILURES[str(status)])
    return told


def takes(kind: type, *, required: bool = True) -> Operation:
    """What a route reads that FastAPI does not read for it."""
    content = {"application/json": {"schema": ref(kind)}}
    return {"requestBody": {"required": required, "content": content}}


def said(kind: Kinds, description: str, *, streamed: Kinds | None = None) -> dict[str, Any]:
    """An answer of `kind`, or where it is asked to be streamed, events of `streamed`."""
    content = {"application/json": {"schema": ref(kind)}}
    if streamed is not None:
        content["text/event-stream"] = {"schema": ref(streamed)}
    return {"description": description, "content": content}


def posted(
    name: str,
    summary: str,
    tag: str,
    takes_kind: type,
    done: dict[str, Any],
    envelope: type = ErrorEnvelope,
) -> Operation:
    """A POST to a model: its body, headers, answer and failures; `name` is its operation's id."""
    failures = {status: said(envelope, _FAILURES[status]) for status in _ASKED}
    return {
        "tags": [tag],
        "summary": summary,
        "operationId": name,
        "parameters": [_tier_header(), key_header()],
        **takes(takes_kind),
        "responses": {"200": done, **failures},
    }


def _tier_header() -> dict[str, Any]:
    return header(
        tier.HEADER,
        "How urgent it is; lowered to what the caller may have.",
        {"type": "string", "enum": list(tier.TIERS)},
    )


def key_header() -> dict[str, Any]:
    """The header that says whose a request is."""
    return header(
        fairness.HEADER,
        "Whose it is: within a tier, those who ask are served in turn; what is kept is theirs.",
        {
            "type": "string",
            "minLength": 1,
            "maxLength": fairness.MOST_CHARS,
            "pattern": "^[!-~]([ -~]*[!-~])?$",  # of ASCII; HTTP takes the spaces around it off
        },
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


def header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A header that may be sent."""
    return _parameter("header", name, description, schema)


def query(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A field of a query that may be sent."""
    return _parameter("query", name, description, schema)


def _parameter(place: str, name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": False,
        "description": description,
        "schema": schema,
    }


_VERSION = header(
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
        query("limit", "Most models of a page, in Anthropic's shape.", _LIMIT),
        *(query(name, why, {"type": "string"}) for name, why in _CURSORS.items()),
        query("lifecycle[]", "Stages of life; here all are active.", _STAGES),
    ]
}
"""Of one that answers in pages, too."""
