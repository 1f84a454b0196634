"""Objects of a schema closed to what it does not name. Pure: a schema in, a narrower one out.

JSON Schema lets an object have any further property unless it says otherwise, and few who write a
schema mean it. A model that may go on, goes on. What is written under the narrower schema fits the
wider one as well, so nothing is lost but noise.

Where parts of one object stand in several places (`allOf`, conditions, references beside
properties) closing one of them would forbid the others: those are left as they are.
"""

from typing import Any

_SAYS = frozenset({"additionalProperties", "patternProperties", "unevaluatedProperties"})
_COMPOSED = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "$ref", "dependentSchemas"})
_ONE = ("items", "additionalItems", "contains")
_MANY = ("anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "$defs", "definitions", "patternProperties")


def closed(schema: Any) -> Any:
    """The narrower schema; the one given is not touched."""
    return schema if _composes(schema) else _closed(schema)


def _composes(schema: Any) -> bool:
    """Somewhere in it all of several schemas must hold for one value."""
    if isinstance(schema, list):
        return any(map(_composes, schema))
    if not isinstance(schema, dict):
        return False
    return "allOf" in schema or any(map(_composes, schema.values()))


def _closed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    out = dict(schema)
    for key in _ONE:
        if key in out:
            out[key] = _closed(out[key])
    for key in _MANY:
        if isinstance(out.get(key), list):
            out[key] = [_closed(part) for part in out[key]]
    for key in _NAMED:
        if isinstance(out.get(key), dict):
            out[key] = {name: _closed(part) for name, part in out[key].items()}
    if out.get("properties") and not (_SAYS | _COMPOSED) & out.keys():
        out["additionalProperties"] = False
    return out
