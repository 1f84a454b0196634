"""Where chat templates run: a sandbox with bounds, for code that came with somebody's weights.

The words that templates know from elsewhere are there: `raise_exception`, `strftime_now`, `tojson`,
loop controls. What a conversation looks like to a template stays out.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from chassis.errors import Fault, Reason
from services.llm.marks import to_json

MAX_SOURCE_CHARS = 256 * 1024
MAX_RANGE_STEPS = 100_000
"""Loop steps over `range` in one rendering."""
MAX_REPEATED_CHARS = 100_000

T = TypeVar("T")


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, and a bound on what `*` can blow up."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise jinja2.TemplateError("powers are not allowed in chat templates")
        for thing, times in ((left, right), (right, left)):
            if isinstance(times, int) and hasattr(thing, "__len__"):
                _bounded(len(thing) * times, MAX_REPEATED_CHARS, "a repetition")
        return super().call_binop(context, operator, left, right)


def _bounded(size: int, limit: int, what: str) -> None:
    if size > limit:
        raise jinja2.TemplateError(f"{what} of {size} is more than the {limit} allowed")


class _Steps:
    """`range`, within one budget for a whole rendering."""

    def __init__(self) -> None:
        self._left = MAX_RANGE_STEPS

    def range(self, *bounds: int) -> range:
        steps = range(*bounds)
        _bounded(len(steps), self._left, "a range")
        self._left -= len(steps)
        return steps


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


@lru_cache(maxsize=8)
def _compiled(source: str) -> jinja2.Template:
    if len(source) > MAX_SOURCE_CHARS:
        raise Fault(Reason.INVALID_TEMPLATE, "The model's chat template is too long to be one.")
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = to_json
    environment.globals |= {"raise_exception": _raise, "strftime_now": _now}
    return environment.from_string(source)


def run(source: str, words: Mapping[str, Any], limit_chars: int) -> str:
    """Render. Raises Fault INVALID_TEMPLATE, with the template's own message if it has one."""

    def rendered() -> str:
        parts, size = [], 0
        for part in _compiled(source).generate(**words, range=_Steps().range):
            size += len(part)
            _bounded(size, limit_chars, "a prompt")
            parts.append(part)
        return "".join(parts)

    return _guarded(rendered)


def _guarded(work: Callable[[], T]) -> T:
    try:
        return work()
    except Fault:
        raise
    except Exception as error:  # whatever the template's code can do wrong
        said = str(error).rstrip(".")[:500]
        raise Fault(
            Reason.INVALID_TEMPLATE,
            f"The model's chat template refuses this conversation: {said}.",
        ) from None
