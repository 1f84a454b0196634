"""Lark rules for arguments in the form that is no JSON (`quoted.py`), by a tool's schema.

Enforced are types, enumerations, properties and which of them are required; anything else a schema
says is the model's to heed. One rule a part of the schema, so the grammar grows as the schema does.
Pure.
"""

import json
from collections.abc import Mapping
from typing import Any

from services.llm.marks import MAX_DEPTH

_BY_TYPE = {
    "string": "quoted",
    "integer": "INTEGER",
    "number": "NUMBER",
    "boolean": "BOOLEAN",
    "null": '"null"',
    "array": "list",
    "object": "object",
}


class QuotedRules:
    """Collects the rules of one grammar; `quote` is the expression for what encloses strings."""

    def __init__(self, quote: str, *, is_token: bool) -> None:
        # Text never holds a token of its own; a quote that is spelled out begins with "<".
        within = "TEXT" if is_token else "/[^<]+/"
        self._count = 0
        self.rules = [
            f"quote: {quote}",
            f"quoted: quote {within}? quote",
            "INTEGER: /-?(0|[1-9][0-9]{0,15})/",
            "NUMBER: /-?(0|[1-9][0-9]{0,15})(\\.[0-9]{1,16})?/",
            'BOOLEAN: "true" | "false"',
            "KEY: /[A-Za-z_][A-Za-z0-9_]*/",
            'anything: quoted | NUMBER | BOOLEAN | "null" | list | object',
            'list: "[" (anything ("," anything)*)? "]"',
            'object: "{" (pair ("," pair)*)? "}"',
            'pair: (KEY | quoted) ":" anything',
        ]

    def of(self, schema: Any, depth: int = 0) -> str:
        """A name for what a schema allows."""
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return "anything"
        allowed = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(allowed, list) and allowed and all(map(_is_plain, allowed)):
            return self._rule(" | ".join(map(_literal, allowed)))
        types = schema.get("type")
        names = types if isinstance(types, list) and types else [types]
        kinds = [self._typed(schema, name, depth) for name in names]
        return kinds[0] if len(kinds) == 1 else self._rule(" | ".join(kinds))

    def _rule(self, expression: str) -> str:
        name = f"value{self._count}"
        self._count += 1
        self.rules.append(f"{name}: {expression}")
        return name

    def _typed(self, schema: Mapping[str, Any], name: Any, depth: int) -> str:
        properties, items = schema.get("properties"), schema.get("items")
        if name == "object" and isinstance(properties, Mapping) and properties:
            return self._object(properties, schema.get("required"), depth)
        if name == "array" and isinstance(items, Mapping):
            item = self.of(items, depth + 1)
            return self._rule(f'"[" ({item} ("," {item})*)? "]"')
        return _BY_TYPE.get(name, "anything") if isinstance(name, str) else "anything"

    def _object(self, properties: Mapping[str, Any], required: Any, depth: int) -> str:
        """What is required in the schema's order, then what is not."""
        pairs = {
            key: self._rule(f"{json.dumps(f'{key}:')} {self.of(of, depth + 1)}")
            for key, of in properties.items()
        }
        needed = set(map(str, required)) if isinstance(required, list) else set()
        first = [pair for key, pair in pairs.items() if key in needed]
        rest = [pair for key, pair in pairs.items() if key not in needed]
        if first:
            within = ' "," '.join(first) + "".join(f' ("," {pair})?' for pair in rest)
        else:
            any_of = self._rule(" | ".join(rest))
            within = f'({any_of} ("," {any_of})*)?'
        return self._rule(f'"{{" {within} "}}"')


def _literal(allowed: Any) -> str:
    if isinstance(allowed, str):
        return f"quote {json.dumps(allowed)} quote" if allowed else "quote quote"
    return json.dumps(json.dumps(allowed))


def _is_plain(allowed: Any) -> bool:
    return allowed is None or isinstance(allowed, str | int | float)
