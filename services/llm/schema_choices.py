"""`oneOf` where no two of its choices can hold at once, said as `anyOf`, which compiles.

Pydantic writes tagged unions as `oneOf` over references, and the compiler does not look behind
those. Choices are told apart by their types, or by a property that has other values in each; such
a tag is then demanded, or an answer without it would fit two choices.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from services.llm.schema_check import Schema, pointed
from services.llm.unfit import Path

_MOST_CHOICES = 256
_MOST_STEPS = 16


def told_apart(schemas: Mapping[Path, Schema]) -> None:
    """Rewrite, in place, every `oneOf` whose choices are known to exclude each other."""
    for schema in schemas.values():
        if isinstance(schema, dict) and "oneOf" in schema:
            choices = _apart(schema["oneOf"], schemas)
            if choices is not None:
                del schema["oneOf"]
                if "anyOf" in schema:
                    schema.setdefault("allOf", []).append({"anyOf": choices})
                else:
                    schema["anyOf"] = choices


def _apart(choices: Sequence[Schema], schemas: Mapping[Path, Schema]) -> list[Schema] | None:
    meant = [_behind(choice, schemas) for choice in choices]
    if len(choices) > _MOST_CHOICES:
        return None
    if _exclusive([_types(schema) for schema in meant]):
        return list(choices)
    for tag in meant[0].get("properties", {}):
        if _exclusive([_values(schema, tag, schemas) for schema in meant]):
            return [_tagged(c, m, tag) for c, m in zip(choices, meant, strict=True)]
    return None


def _tagged(choice: Schema, meant: dict[str, Any], tag: str) -> Schema:
    if tag in meant.get("required", ()):
        return choice
    return {"allOf": [choice, {"type": "object", "required": [tag]}]}


def _behind(schema: Schema, schemas: Mapping[Path, Schema]) -> dict[str, Any]:
    for _ in range(_MOST_STEPS):
        if not isinstance(schema, dict) or set(schema) != {"$ref"}:
            break
        schema = schemas[pointed(schema["$ref"])]
    return schema if isinstance(schema, dict) else {}


def _exclusive(sets: Sequence[frozenset[str] | None]) -> bool:
    if any(values is None for values in sets):
        return False
    return not any(a & b for a, b in combinations([s for s in sets if s is not None], 2))


def _types(schema: dict[str, Any]) -> frozenset[str] | None:
    if "type" not in schema:
        return None
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return frozenset("number" if kind == "integer" else kind for kind in types)


def _values(
    schema: dict[str, Any], tag: str, schemas: Mapping[Path, Schema]
) -> frozenset[str] | None:
    """The values of the tag, as JSON; None: it may have any, or this need not be an object."""
    if schema.get("type") != "object" or tag not in schema.get("properties", {}):
        return None
    said = _behind(schema["properties"][tag], schemas)
    values = [said["const"]] if "const" in said else said.get("enum")
    # Of other values, some are equal that are not written alike: 1 and 1.0.
    if values is None or not all(isinstance(v, str | int | None) for v in values):
        return None
    return frozenset(json.dumps(value) for value in values)
