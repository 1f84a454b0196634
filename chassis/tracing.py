"""Traces: what one request did, and where, over all processes that had to do with it.

Spans are told to a collector when one is configured (`tracing_otel`). Without one nothing of that
is imported, and beginning a span is one look at a variable.

A trace begins at the edge or with a caller's `traceparent` (W3C Trace Context). What no traced
request asked for (renewals, watches, probes) has no span. The span of the work at hand travels in
a context variable, as the request's id does; what is begun below it is its child, and what is
called carries it on, until it has ended. Never told: bodies, prompts, header values, query strings.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Protocol

from chassis import log
from chassis.errors import Fault

TRACEPARENT = "traceparent"
"""Header and metadata key."""
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_CLOSE_S = 0.5
"""How long the last spans may take; every process of a house that stops may need as much."""

Attributes = Mapping[str, str | int | float | bool]


class Span:
    """Some work, from its beginning to `end`. This one is told to nobody."""

    __slots__ = ()

    def __bool__(self) -> bool:
        """Whether anything can be told of it."""
        return False

    def __enter__(self) -> "Span":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.end(_how(error))

    @property
    def traceparent(self) -> str:
        """What carries it on; empty: there is nothing to carry, or not any more."""
        return ""

    @property
    def trace_id(self) -> str:
        """As it stands in logs."""
        return ""

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        """Something happened, now."""

    def tell(self, attributes: Attributes, name: str = "") -> None:
        """What it came to; with a `name`, it is called so from now on."""

    def end(self, failed: str = "") -> None:
        """It is over; `failed` says how, in one word of a known few. Only the first time counts."""


class Tracer(Protocol):
    """Makes spans that are told to somebody."""

    def begin(
        self, name: str, *, serves: bool, traceparent: str, under: Span | None, said: Attributes
    ) -> Span:
        """Below `under`, or else below what `traceparent` names, or else with a trace of its own.

        `serves`: it is the answer to a call from another process.
        """

    def close(self, within_s: float) -> None:
        """Tell what is left, if that is done `within_s`."""


NOTHING = Span()
current: ContextVar[Span] = ContextVar("span", default=NOTHING)
"""What the current task works on."""
_tracer: Tracer | None = None


class NoTracesError(Exception):
    """What tells traces is not installed."""


def endpoint_of(configured: str) -> str:
    """Where the collector is: as configured, or by OpenTelemetry's own variables; empty: none."""
    return configured or next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")


def configure(
    service: str, endpoint: str, sample: float = 1.0, said: Attributes | None = None
) -> None:
    """Tell the collector at `endpoint` from now on; an empty one: nobody. Raises NoTracesError.

    `sample`: the share of traces that begin here; one that came from elsewhere is told if its
    sender tells it.
    """
    global _tracer  # noqa: PLW0603 - of the process, as its log is
    _tracer = None
    if not endpoint:
        return
    try:
        from chassis.tracing_otel import OtelTracer  # noqa: PLC0415 - heavy, and seldom wanted
    except ModuleNotFoundError as error:
        raise NoTracesError(
            f"traces need the module {error.name}; install cohabit with its extra `traces`"
        ) from None
    _tracer = OtelTracer(service, endpoint, sample, said or {})


def is_on() -> bool:
    """Whether spans are told to anybody."""
    return _tracer is not None


def close() -> None:
    """Tell what is left, soon; for the end of the process."""
    if _tracer is not None:
        _tracer.close(_CLOSE_S)


def begin(name: str, said: Attributes | None = None) -> Span:
    """A part of the work at hand; nothing where that has no span."""
    if _tracer is None or not (under := current.get()):
        return NOTHING
    return _tracer.begin(name, serves=False, traceparent="", under=under, said=said or {})


def arrive(name: str, traceparent: str, said: Attributes | None = None) -> Span:
    """A request from outside the house, which the current task works on from now on."""
    if _tracer is None:
        return NOTHING
    span = _tracer.begin(name, serves=True, traceparent=traceparent, under=None, said=said or {})
    _enter(span)
    return span


def take_call(name: str, metadata: Iterable[tuple[str, str | bytes]], said: Attributes) -> Span:
    """A call from another process, which the current task works on from now on; nothing, if its
    caller has no span for it.
    """
    carried = next((value for key, value in metadata if key == TRACEPARENT), "")
    if _tracer is None or not carried:
        return NOTHING
    span = _tracer.begin(name, serves=True, traceparent=str(carried), under=None, said=said)
    _enter(span)
    return span


def carried(span: Span | None = None) -> tuple[tuple[str, str], ...]:
    """Metadata that has a call belong to `span`, or else to the work at hand."""
    if _tracer is None:
        return ()
    value = (span or current.get()).traceparent
    return ((TRACEPARENT, value),) if value else ()


def _enter(span: Span) -> None:
    current.set(span)
    log.trace_id.set(span.trace_id)


def _how(error: BaseException | None) -> str:
    """What an exception means to the span that it leaves."""
    if error is None:
        return ""
    if isinstance(error, Fault):
        return error.reason.value
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return "cancelled"
    return "error"
