"""What is said of a schema, grammar or expression that no answer can be held to, and the place.

Places are JSON paths: `$.properties.a.items`, `$.anyOf[0]`, `$.properties["a b"]`.
"""

import json
import re

Step = str | int
Path = tuple[Step, ...]

_MOST_PATH_CHARS = 200


class Unfit(ValueError):
    """One sentence, for the caller who wrote it."""


def dotted(path: Path) -> str:
    """The path as text; a long one keeps its end."""
    text = "$" + "".join(_step(step) for step in path)
    return text if len(text) <= _MOST_PATH_CHARS else "…" + text[1 - _MOST_PATH_CHARS :]


def _step(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if re.fullmatch(r"[$\w-]+", step) else f"[{json.dumps(step)}]"


def unfit(path: Path, why: str) -> Unfit:
    """`$.a.b` and what is wrong with it."""
    return Unfit(f"`{dotted(path)}` {why}.")
