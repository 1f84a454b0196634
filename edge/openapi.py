"""/openapi.json made true: the schemas come from the structs that decode and encode the bodies."""

from collections.abc import Collection
from typing import Any, Literal

import msgspec

from edge import house_views
from edge.anthropic.models import ModelInfo, ModelPage
from edge.anthropic.words import AnthropicError
from edge.catalog import Health, ModelList, ModelObject
from edge.cutouts import described as cutouts
from edge.described_more import MORE, RUNS_PATH
from edge.described_text import LEGACY_PATHS, TEXT
from edge.documenting import REF
from edge.jobs import described as jobs
from edge.pictures import described as pictures
from edge.signals.failures import FailureList
from edge.speech import ErrorEnvelope

NO_KEY = "No key is needed."
DESCRIPTION = f"""Many models living on one GPU, for clients that talk to OpenAI or Anthropic.

A model is loaded when it is first asked for; requests wait their turn by tier, which the header
`x-cohabit-tier` names, and within a tier clients share by the name that each gives itself in
`x-cohabit-key`. Every answer that is an error has the body of its dialect: the message is for
people, the code for machines, and `retry-after` is set where waiting helps. {NO_KEY} A
field that is not supported is refused by name.
"""
_TAGS = (
    ("chat", "Conversations, in OpenAI's dialect."),
    ("responses", "The same in OpenAI's newer dialect, kept for a while."),
    ("messages", "Conversations, in Anthropic's dialect."),
    ("completions", "Bare prompts, in OpenAI's dialect."),
    ("vectors", "Embeddings, and documents ranked by relevance."),
    ("tokens", "Texts as models read them."),
    ("models", "What can be asked for."),
    ("probes", "For whoever watches over the house."),
    ("admin", "For whoever runs the house, on the machine itself."),
    ("docs", "Where to read on."),
)
_SIMULATED = ("simulated", "Pretended work on models that are not there, with real waiting.")
_LEGACY = ("legacy", "Text routes of former APIs; a name that is no model's is the route's own.")


class Welcome(msgspec.Struct):
    """What there is here, for who asks without a path."""

    version: str
    docs: str
    openapi: str
    service: Literal["cohabit"] = "cohabit"


_TYPES: tuple[type, ...] = (
    *house_views.TYPES,
    *(ModelList, ModelObject, ModelPage, ModelInfo, Health, Welcome, FailureList),
    *(ErrorEnvelope, AnthropicError),
)
_RAW = {**TEXT, **MORE, **pictures.PICTURES, **cutouts.CUTOUTS, **jobs.JOBS}


def tags(raw_paths: Collection[str]) -> list[dict[str, str]]:
    """The groups of routes, in the page's order."""
    told = list(_TAGS)
    if RUNS_PATH in raw_paths:
        told.insert(1, _SIMULATED)
    if jobs.IMAGES_PATH in raw_paths:
        told.insert(1, jobs.TAG)
    if not cutouts.CUTOUTS.keys().isdisjoint(raw_paths):
        told.insert(1, cutouts.TAG)
    if pictures.GENERATIONS_PATH in raw_paths:
        told.insert(1, pictures.TAG)
    if not LEGACY_PATHS.isdisjoint(raw_paths):
        told.append(_LEGACY)
    return [{"name": name, "description": description} for name, description in told]


def complete(document: dict[str, Any], raw_paths: Collection[str]) -> dict[str, Any]:
    """Add the bodies' schemas and the routes that FastAPI does not know of."""
    offered = {path: _RAW[path] for path in raw_paths}
    types = dict.fromkeys(_TYPES)
    for described in offered.values():
        types |= dict.fromkeys(described.types)
    _, schemas = msgspec.json.schema_components(types, ref_template=REF)
    document.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
    raw = {path: {"post": described.operation()} for path, described in offered.items()}
    for path, operations in raw.items():
        document["paths"].setdefault(path, {}).update(operations)
    document["paths"] = {**{path: document["paths"][path] for path in raw}, **document["paths"]}
    _forget_validation(document)
    return document


def _forget_validation(document: dict[str, Any]) -> None:
    # FastAPI announces a 422 of its own for every route with a parameter; none is ever sent.
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
