"""Spans by OpenTelemetry, told to a collector by OTLP over gRPC. Imported where one is configured.

They wait in a bounded queue and leave on a thread of the library; no request ever waits for that.
What cannot be told is lost, counted, and said in the log once a minute at most.
"""

import logging
import threading
import time
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import Counter

from chassis import log
from chassis.tracing import TRACEPARENT, Attributes, Span

_QUEUE = 2048
_BATCH = 256
_EVERY_MS = 1000
_EXPORT_S = 5.0
_QUIET_S = 60.0
_LIMITS = SpanLimits(
    max_span_attributes=24,
    max_event_attributes=8,
    max_events=32,
    max_links=0,
    max_span_attribute_length=128,
)
_NOWHERE = Context()
_format = TraceContextTextMapPropagator()

SPANS = Counter(
    "cohabit_trace_spans_total", "Spans that the collector took, or did not.", ["outcome"]
)


class OtelTracer:
    """Makes spans that the collector at `endpoint` is told."""

    def __init__(self, service: str, endpoint: str, sample: float, said: Attributes) -> None:
        _be_quiet()
        named = {"service.name": service, "service.namespace": "cohabit"}
        self._exporter = _Counted(OTLPSpanExporter(endpoint, timeout=_EXPORT_S))
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(sample)),
            resource=Resource.create({**named, **said}),
            span_limits=_LIMITS,
            shutdown_on_exit=False,  # `close` has a deadline, and that has not
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter,
                max_queue_size=_QUEUE,
                schedule_delay_millis=_EVERY_MS,
                max_export_batch_size=_BATCH,
            )
        )
        self._tracer = self._provider.get_tracer("cohabit")

    def begin(
        self, name: str, *, serves: bool, traceparent: str, under: Span | None, said: Attributes
    ) -> Span:
        """As `Tracer.begin`."""
        if isinstance(under, OtelSpan):
            parent = under.context
        else:  # nothing else that a caller sent: `tracestate` holds what he pleases
            parent = _format.extract({TRACEPARENT: traceparent}, _NOWHERE)
        kind = trace.SpanKind.SERVER if serves else trace.SpanKind.INTERNAL
        return OtelSpan(self._tracer.start_span(name, parent, kind, said))

    def close(self, within_s: float) -> None:
        """As `Tracer.close`."""
        if self._exporter.failing:
            return
        closing = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(within_s)


class OtelSpan(Span):
    """One of OpenTelemetry's."""

    __slots__ = ("_ended", "_span", "context")

    def __init__(self, span: trace.Span) -> None:
        self._span, self._ended = span, False
        self.context = trace.set_span_in_context(span, _NOWHERE)

    def __bool__(self) -> bool:
        """It goes on, and is told if its trace is."""
        return not self._ended

    @property
    def traceparent(self) -> str:
        """As W3C writes it."""
        if self._ended:
            return ""
        told = self._span.get_span_context()
        return f"00-{told.trace_id:032x}-{told.span_id:016x}-{int(told.trace_flags):02x}"

    @property
    def trace_id(self) -> str:
        """Its trace, in hexadecimal."""
        return f"{self._span.get_span_context().trace_id:032x}"

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        """As `Span.event`."""
        if not self._ended:
            self._span.add_event(name, attributes)

    def tell(self, attributes: Attributes, name: str = "") -> None:
        """As `Span.tell`."""
        if self._ended:
            return
        self._span.set_attributes(attributes)
        if name:
            self._span.update_name(name)

    def end(self, failed: str = "") -> None:
        """As `Span.end`."""
        if self._ended:
            return
        self._ended = True
        if failed:
            self._span.set_attribute("error.type", failed)
            self._span.set_status(trace.StatusCode.ERROR, failed)
        self._span.end()


class _Counted(SpanExporter):
    """An exporter that counts, and knows whether it fails."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self.failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Tell them. Called on the library's thread."""
        result = self._inner.export(spans)
        self.failing = result is not SpanExportResult.SUCCESS
        SPANS.labels("lost" if self.failing else "told").inc(len(spans))
        return result

    def shutdown(self) -> None:
        """Tell nothing more."""
        self._inner.shutdown()


class _Seldom(logging.Handler):
    """What the library says, in our log, once in a while."""

    def __init__(self, every_s: float) -> None:
        super().__init__(logging.WARNING)
        self._every_s = every_s
        self._due_s = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, unless something was said a moment ago."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + self._every_s
            log.get().warning("traces not told", why=record.getMessage()[:300])


def _be_quiet() -> None:
    library = logging.getLogger("opentelemetry")
    library.propagate = False
    library.handlers = [_Seldom(_QUIET_S)]
