"""A JSON schema, checked word by word and rebuilt from the words that answers can be held to.

What comes out holds nothing that was not looked at: remarks are dropped, references lead to
schemas inside it, and sizes are bounded. Whether it can be fulfilled at all is asked elsewhere
(`schema_ends.py`, and the compiler itself).
"""

import json
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NoReturn
from urllib.parse import quote, unquote

from services.llm.regex_bounds import weigh
from services.llm.schema_values import PLAIN
from services.llm.schema_words import (
    FORMATS,
    KEYWORDS,
    SAYS_NOTHING,
    UNSUPPORTED,
    UNSUPPORTED_FORMATS,
    Holds,
)
from services.llm.unfit import Path, Unfit, unfit

MAX_SOURCE_BYTES = 256 * 1024
MAX_DEPTH = 40
"""Schemas inside schemas; the compiler itself gives up at 128 brackets."""
MAX_SCHEMAS = 4000
MAX_OPTIONAL = 400
"""Properties of one object that may be left out: each is an alternative at every other."""
MAX_VALUES = 5000
"""In all `enum`s and `const`s together, parts of values counted."""
MAX_STRING_BYTES = 8192
"""Of one value, name or pattern."""
MAX_WEIGHT = 20_000
"""Positions of all patterns together."""
MAX_STEPS = 20_000
"""The least common multiple of all `multipleOf`, in their last digit: states of the matcher."""
MAX_PLACES = 9

Schema = bool | dict[str, Any]


def parse(source: str) -> Any:
    """JSON text, bounded. Raises Unfit."""
    if len(source.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
        raise Unfit(f"The schema is larger than {MAX_SOURCE_BYTES // 1024} KiB; make it smaller.")
    try:
        source.encode()
        value = json.loads(source, parse_constant=_no_number)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)[:100]
        raise Unfit(f"The schema is not JSON that can be read: {why}.") from None
    return value


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


class Check:
    """One pass over one schema; `schemas` holds every schema of the result by its path."""

    def __init__(self) -> None:
        self.schemas: dict[Path, Schema] = {}
        self._refs: list[tuple[Path, Path]] = []
        self._counted: Mapping[Holds, Callable[[Any, Path, int], Any]] = {
            Holds.SCHEMA: self._one,
            Holds.SCHEMAS: self._several,
            Holds.NAMED_SCHEMAS: self._named,
            Holds.PATTERNED_SCHEMAS: self._patterned,
            Holds.VALUES: self._list_of_values,
            Holds.VALUE: self._value,
            Holds.PATTERN: self._pattern,
            Holds.REFERENCE: self._reference,
            Holds.STEP: self._step,
        }
        self._values = self._weight = 0
        self._steps = self._finest = 0

    def run(self, schema: Any) -> Schema:
        """The schema without remarks. Raises Unfit, which names the word and its path."""
        result = self._schema(schema, ())
        for path, target in self._refs:
            if target not in self.schemas:
                raise unfit(path, "leads to no schema of this document")
        return result

    def _schema(self, schema: Any, path: Path, depth: int = 0) -> Schema:
        if depth > MAX_DEPTH:
            raise unfit(path, f"is nested deeper than {MAX_DEPTH} schemas; flatten it")
        if len(self.schemas) >= MAX_SCHEMAS:
            raise unfit(path, f"is one schema more than the {MAX_SCHEMAS} there may be")
        if isinstance(schema, bool):
            self.schemas[path] = schema
            return schema
        if not isinstance(schema, dict):
            raise unfit(path, "must be a schema: an object, or true or false")
        result = self.schemas[path] = {}
        for word, value in schema.items():
            at = (*path, word)
            if word in UNSUPPORTED and not any(
                word == idle and value is says for idle, says in SAYS_NOTHING
            ):
                raise unfit(at, "is not supported; leave it out, or say it in another way")
            if word in KEYWORDS and not _is_remark(word, value):
                result[word] = self._word(word, value, at, depth)
        _check_object(result, path)
        return result

    def _word(self, word: str, value: Any, at: Path, depth: int) -> Any:
        holds = KEYWORDS[word]
        if holds in PLAIN:
            return PLAIN[holds](value, at)
        return self._counted[holds](value, at, depth)

    def _one(self, value: Any, at: Path, depth: int) -> Schema:
        if isinstance(value, list):
            raise unfit(at, "must be one schema; for a list of them say `prefixItems`")
        return self._schema(value, at, depth + 1)

    def _several(self, value: Any, at: Path, depth: int) -> list[Schema]:
        if not isinstance(value, list) or not value:
            raise unfit(at, "must be a list of schemas, at least one")
        return [self._schema(part, (*at, i), depth + 1) for i, part in enumerate(value)]

    def _named(self, value: Any, at: Path, depth: int) -> dict[str, Schema]:
        if not isinstance(value, dict):
            raise unfit(at, "must be an object of schemas")
        if any(len(name.encode()) > MAX_STRING_BYTES for name in value):
            raise unfit(at, f"has a name longer than {MAX_STRING_BYTES} bytes")
        return {name: self._schema(v, (*at, name), depth + 1) for name, v in value.items()}

    def _patterned(self, value: Any, at: Path, depth: int) -> dict[str, Schema]:
        result = self._named(value, at, depth)
        for name in result:
            self._pattern(name, (*at, name))
        return result

    def _reference(self, value: Any, at: Path, _depth: int = 0) -> str:
        if not isinstance(value, str) or not (value == "#" or value.startswith("#/")):
            raise unfit(at, "must lead into this document, as `#/$defs/name` does")
        try:
            target = pointed(value)
        except UnicodeDecodeError:
            raise unfit(at, "is not written in UTF-8") from None
        self._refs.append((at, target))
        return reference(target)

    def _list_of_values(self, value: Any, at: Path, _depth: int = 0) -> list[Any]:
        if not isinstance(value, list) or not value:
            raise unfit(at, "must be a list of values, at least one")
        self._value(value, at)
        return value

    def _value(self, value: Any, at: Path, _depth: int = 0) -> Any:
        todo = [value]
        while todo:
            part = todo.pop()
            self._values += 1
            if self._values > MAX_VALUES:
                raise unfit(at, f"is one value more than the {MAX_VALUES} there may be in all")
            if isinstance(part, str) and len(part.encode()) > MAX_STRING_BYTES:
                raise unfit(at, f"has a string longer than {MAX_STRING_BYTES} bytes")
            if isinstance(part, dict):
                todo.extend(part)
            if isinstance(part, dict | list):
                todo.extend(part.values() if isinstance(part, dict) else part)
        return value

    def _pattern(self, value: Any, at: Path, _depth: int = 0) -> str:
        if not isinstance(value, str) or len(value.encode()) > MAX_STRING_BYTES:
            raise unfit(at, f"must be a regular expression of at most {MAX_STRING_BYTES} bytes")
        try:
            self._weight += weigh(value)
        except Unfit as error:
            raise unfit(at, f"cannot be matched: {error}") from None
        if self._weight > MAX_WEIGHT:
            raise unfit(at, f"and those before stand for more than {MAX_WEIGHT} positions")
        return value

    def _step(self, value: Any, at: Path, _depth: int = 0) -> int | float:
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise unfit(at, "must be a number above 0")
        _, digits, exponent = Decimal(str(value)).normalize().as_tuple()
        if not isinstance(exponent, int) or not -MAX_PLACES <= exponent <= MAX_PLACES:
            raise unfit(at, f"must be between 1e-{MAX_PLACES} and 1e{MAX_PLACES}")
        step = int("".join(map(str, digits))) * 10 ** (exponent + MAX_PLACES)
        self._steps = math.lcm(self._steps or step, step)
        self._finest = max(self._finest, -exponent)
        if self._steps > MAX_STEPS * 10 ** (MAX_PLACES - self._finest):
            raise unfit(at, f"is too fine: a common multiple must stay under {MAX_STEPS} steps")
        return value


def _is_remark(word: str, value: Any) -> bool:
    return (
        word == "format"
        and isinstance(value, str)
        and value not in FORMATS
        and value not in UNSUPPORTED_FORMATS
    )


def _check_object(schema: Mapping[str, Any], path: Path) -> None:
    names = schema.get("properties", {})
    required = schema.get("required", [])
    if len(required) > MAX_SCHEMAS:
        raise unfit((*path, "required"), f"has more than {MAX_SCHEMAS} names")
    if len(names.keys() - set(required)) > MAX_OPTIONAL:
        raise unfit(
            (*path, "properties"),
            f"has more than {MAX_OPTIONAL} that may be left out; require them or split it",
        )


def pointed(reference: str) -> Path:
    """`#/$defs/a` → ("$defs", "a"); a number is a place in a list of schemas."""
    pointer = unquote(reference, errors="strict")
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    lists = {"anyOf", "oneOf", "allOf", "prefixItems"}
    path: list[str | int] = []
    for step in steps:
        in_list = path and path[-1] in lists and step.isascii() and step.isdigit()
        path.append(int(step[:9]) if in_list else step)
    return tuple(path)


def reference(path: Path) -> str:
    """The other way; as a URI's fragment, in which few characters may stand as they are."""
    steps = [str(step).replace("~", "~0").replace("/", "~1") for step in path]
    return "#" + "".join("/" + quote(step, safe="$~") for step in steps)
