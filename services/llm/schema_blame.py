"""Where in a schema the compiler's complaint comes from: it names no place itself.

The schema is compiled again, part by part, descending into the part that fails in the same way.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from services.llm.schema_check import Schema, pointed
from services.llm.schema_words import KEYWORDS, Holds
from services.llm.unfit import Path

Complaint = Callable[[Any], str]
"""Compiles a schema; what is wrong with it, or nothing."""


def blamed(schema: Schema, complaint: Complaint, *, trials: int) -> tuple[Path, str]:
    """The innermost place that fails, as far as so many trials reach, and how."""
    # The whole stays at hand under a name, so that references inside the parts still lead there.
    whole = json.loads(json.dumps(schema).replace('"$ref": "#', '"$ref": "#/$defs/whole'))
    path: Path = ()
    why, seen = complaint(schema), {path}
    while True:
        failing: list[tuple[Path, str]] = []
        for part in _parts(schema, path):
            trials -= 1
            if trials < 0:
                return path, why
            said = complaint({"$ref": _reference(part), "$defs": {"whole": whole}})
            if said and part not in seen:
                failing.append((part, said))
                if said == why:
                    break
        if not failing:
            return path, why
        path, why = next((f for f in failing if f[1] == why), failing[0])
        seen.add(path)


def _reference(path: Path) -> str:
    steps = [str(step).replace("~", "~0").replace("/", "~1") for step in path]
    return "/".join(["#/$defs/whole", *steps])


def _parts(root: Schema, path: Path) -> Iterator[Path]:
    """The schemas right below that one, and where it refers to; `false` only where it is needed."""
    schema: Any = root
    for step in path:
        schema = schema[step]
    if not isinstance(schema, dict):
        return
    for word, value in schema.items():
        match KEYWORDS[word]:
            case Holds.REFERENCE:
                yield pointed(value)
            case Holds.SCHEMA:
                if value is not False:
                    yield (*path, word)
            case Holds.SCHEMAS:
                yield from ((*path, word, index) for index in range(len(value)))
            case Holds.NAMED_SCHEMAS | Holds.PATTERNED_SCHEMAS if word in {
                "properties",
                "patternProperties",
            }:
                needed = schema.get("required", ())
                names = sorted(value, key=lambda name: name not in needed)
                yield from ((*path, word, n) for n in names if value[n] is not False or n in needed)
