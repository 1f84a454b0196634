"""What /openapi.json tells of keys, in a house that asks for them. Pure."""

from typing import Any

from edge.documenting import said
from edge.keys.trust import Trust, trust_of
from edge.openapi import NO_KEY
from edge.speech import ErrorEnvelope

_KEY = "Send an API key as `authorization: Bearer …` or `x-api-key: …`."
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
_REFUSALS = {
    "401": "There is no API key, or none that is taken.",
    "403": "The API key is not for this.",
    "429": "The API key does too much, or the queue is full; `retry-after` says when to try again.",
}


def lock(document: dict[str, Any]) -> dict[str, Any]:
    """The document, which says from now on what asks for a key."""
    info = document["info"]
    info["description"] = info["description"].replace(NO_KEY, _KEY)
    document["components"]["securitySchemes"] = _SCHEMES
    for path, operations in document["paths"].items():
        asks = trust_of(path) in (Trust.KEYED, Trust.SIGNALS)
        for operation in operations.values():
            operation["security"] = [{name: []} for name in _SCHEMES] if asks else []
            if asks:
                _add_refusals(operation["responses"])
    return document


def _add_refusals(responses: dict[str, Any]) -> None:
    """In the envelope in which the route refuses anything else."""
    failures = (answer for status, answer in responses.items() if status[0] in "45")
    like = next(failures, said(ErrorEnvelope, ""))
    for status, why in _REFUSALS.items():
        responses[status] = like | {"description": why}
