"""Whether every schema can be fulfilled by something finite: one that demands itself cannot.

`{"$ref": "#"}`, or an object that requires a property of its own kind, would have the model write
for ever. Everything else that makes a schema impossible is found by the compiler.
"""

from collections.abc import Callable, Mapping
from typing import Any

from services.llm.schema_check import Schema, pointed
from services.llm.unfit import Path, Unfit, unfit

_CONTAINERS = ("object", "array")


def check_ends(schemas: Mapping[Path, Schema]) -> None:
    """Raises Unfit, which names a `$ref` through which a schema demands itself.

    The least solution: nothing ends until its parts are known to. Parts stand behind their
    schema, so most of it is known after one pass backwards.
    """
    ends: set[Path] = set()
    backwards = list(schemas)[::-1]
    grew = True
    while grew:
        grew = False
        for path in backwards:
            if path not in ends and _ends(schemas[path], path, ends.__contains__):
                ends.add(path)
                grew = True
    endless = [path for path in schemas if path not in ends]
    if endless:
        raise _blamed(endless, schemas)


def _blamed(endless: list[Path], schemas: Mapping[Path, Schema]) -> Unfit:
    for path in endless:
        schema = schemas[path]
        if isinstance(schema, dict) and "$ref" in schema:
            return unfit((*path, "$ref"), "demands itself without an end; let it be left out")
    return unfit(endless[0], "demands itself without an end")


def _ends(schema: Schema, path: Path, known: Callable[[Path], bool]) -> bool:
    if isinstance(schema, bool):
        return True
    if "$ref" in schema and not known(pointed(schema["$ref"])):
        return False
    if not all(known((*path, "allOf", i)) for i in range(len(schema.get("allOf", ())))):
        return False
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        if options and not any(known((*path, word, i)) for i in range(len(options))):
            return False
    if "enum" in schema or "const" in schema or "type" not in schema:
        return True
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return any(_type_ends(kind, schema, path, known) for kind in types)


def _type_ends(
    kind: str, schema: dict[str, Any], path: Path, known: Callable[[Path], bool]
) -> bool:
    if kind not in _CONTAINERS:
        return True
    if kind == "object":
        named = schema.get("properties", {})
        needed = [(*path, "properties", n) for n in schema.get("required", ()) if n in named]
        return all(map(known, needed))
    least, first = int(schema.get("minItems", 0)), len(schema.get("prefixItems", ()))
    if not all(known((*path, "prefixItems", i)) for i in range(min(least, first))):
        return False
    return least <= first or "items" not in schema or known((*path, "items"))
