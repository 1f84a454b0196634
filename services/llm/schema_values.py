"""Keywords of a schema that hold a plain value: what that may be, and within what bounds."""

from collections.abc import Callable, Mapping
from typing import Any

from services.llm.schema_words import FORMATS, TYPES, Holds
from services.llm.unfit import Path, unfit

MAX_LEAST = 65_536
"""Of `minItems` and its like: an answer has no room for more."""
MAX_COUNT = 2**31 - 1
MAX_NUMBER = 2**63 - 1


def is_number(value: Any) -> bool:
    """A JSON number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(value: Any, at: Path) -> int:
    most = MAX_LEAST if str(at[-1]).startswith("min") else MAX_COUNT
    if not is_number(value) or not 0 <= value <= most or value != int(value):
        raise unfit(at, f"must be a whole number from 0 to {most}")
    return int(value)


def _number(value: Any, at: Path) -> int | float:
    if not is_number(value) or not -MAX_NUMBER <= value <= MAX_NUMBER:
        raise unfit(at, "must be a number within 64 bits")
    number: int | float = value
    return number


def _types(value: Any, at: Path) -> Any:
    types = value if isinstance(value, list) else [value]
    if not types or not all(isinstance(kind, str) and kind in TYPES for kind in types):
        raise unfit(at, f"must be one or more of {', '.join(sorted(TYPES))}")
    return value


def _names(value: Any, at: Path) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise unfit(at, "must be a list of names")
    return value


def _format(value: Any, at: Path) -> str:
    if not isinstance(value, str) or value not in FORMATS:
        raise unfit(at, f"is not supported; supported are {', '.join(sorted(FORMATS))}")
    return value


PLAIN: Mapping[Holds, Callable[[Any, Path], Any]] = {
    Holds.COUNT: _count,
    Holds.NUMBER: _number,
    Holds.TYPES: _types,
    Holds.NAMES: _names,
    Holds.FORMAT: _format,
}
