"""Where in a schema the compiler's complaint comes from: it names no place itself.

The schema is compiled again, part by part, descending into the part that fails in the same way,
and there without one keyword after the other.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from services.llm.schema_check import Schema, pointed
from services.llm.schema_words import KEYWORDS, Holds
from services.llm.unfit import Path

Complaint = Callable[[Schema], str]
"""Compiles a schema; what is wrong with it, or nothing."""

_ASIDE = frozenset({"$defs", "definitions"})
_SUBSTANCE = frozenset({"type", "properties", *_ASIDE})
"""Without these nearly everything is possible: that blames nothing."""


class _Trials:
    """Compiles parts of one schema, so many times."""

    def __init__(self, schema: Schema, complaint: Complaint, trials: int) -> None:
        # Names in a part lead into the whole, which stays at hand.
        moved = json.dumps(schema).replace('"$ref": "#', '"$ref": "#/$defs/whole')
        self._whole, self._complaint, self._left = json.loads(moved), complaint, trials

    def complaint(self, path: Path, without: str = "") -> str:
        """Against the part alone; nothing, when all trials are used up."""
        self._left -= 1
        part = _at(self._whole, path)
        if self._left < 0 or part is True:
            return ""
        if isinstance(part, dict):
            kept = {word: value for word, value in part.items() if word != without}
            part = {**kept, "$defs": {"whole": self._whole}}
        return self._complaint(part)

    def mended(self, path: Path, without: str) -> bool:
        """Whether the part is possible without the keyword."""
        return self._left > 0 and not self.complaint(path, without)


def blamed(schema: Schema, complaint: Complaint, *, trials: int) -> tuple[Path, str]:
    """The innermost place that fails, as far as so many trials reach, and how."""
    tried = _Trials(schema, complaint, trials)
    path: Path = ()
    why, seen = complaint(schema), {path}
    while True:
        failing: list[tuple[Path, str]] = []
        for part in _parts(schema, path):
            said = "" if part in seen else tried.complaint(part)
            if said:
                failing.append((part, said))
            if said == why:
                break
        if not failing:
            return _with_keyword(schema, path, tried), why
        path, why = next((f for f in failing if f[1] == why), failing[0])
        seen.add(path)


def _with_keyword(schema: Schema, path: Path, tried: _Trials) -> Path:
    part = _at(schema, path)
    words = [word for word in part if word not in _SUBSTANCE] if isinstance(part, dict) else []
    return next(((*path, word) for word in words if tried.mended(path, word)), path)


def _at(schema: Any, path: Path) -> Any:
    for step in path:
        schema = schema[step]
    return schema


def _parts(root: Schema, path: Path) -> Iterator[Path]:
    """The schemas right below that one, and where it refers to; `false` only where it is needed."""
    schema = _at(root, path)
    for word, value in schema.items() if isinstance(schema, dict) else ():
        match KEYWORDS[word]:
            case Holds.REFERENCE:
                yield pointed(value)
            case Holds.SCHEMA:
                if value is not False:
                    yield (*path, word)
            case Holds.SCHEMAS:
                yield from ((*path, word, index) for index in range(len(value)))
            case Holds.NAMED_SCHEMAS | Holds.PATTERNED_SCHEMAS if word not in _ASIDE:
                needed = schema.get("required", ())
                names = sorted(value, key=lambda name: name not in needed)
                yield from ((*path, word, n) for n in names if n in needed or value[n] is not False)
