"""What happens around every call of every service: ids, faults, metrics, one log line, a span.

A servicer raises `Fault`; this turns it into a status with ErrorInfo and RetryInfo. Anything else
that escapes a servicer is a bug of ours: it is logged with its stack and answered INTERNAL with a
sentence that tells nothing.
"""

import asyncio
import functools
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
from prometheus_client import Counter, Gauge, Histogram

from chassis import log, metrics, tracing
from chassis.channel import REQUEST_ID
from chassis.errors import Fault, Reason
from chassis.status import DETAILS_KEY, details_of, fault_of
from chassis.tracing import Span

_QUIET = ("grpc.health.", "grpc.reflection.")
_BROKEN = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""What is no mistake of the caller's, by OpenTelemetry's conventions."""


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the handlers of all four call kinds."""

    def __init__(self) -> None:
        self._wrapped: dict[str, tuple[Any, Any]] = {}
        """By method: the handler, and what was made of it; bounded by the methods there are."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler for one method."""
        handler = await continuation(handler_call_details)
        service, _, method = handler_call_details.method.lstrip("/").rpartition("/")
        if handler is None or service.startswith(_QUIET):
            return handler
        known = self._wrapped.get(handler_call_details.method)
        if known is not None and known[0] is handler:
            return known[1]
        if handler.response_streaming:
            wrapped = _streaming(_inner(handler), service, method)
            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
        else:
            wrapped = _unary(_inner(handler), service, method)
            make = (
                grpc.stream_unary_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_unary_rpc_method_handler
            )
        made = make(wrapped, handler.request_deserializer, handler.response_serializer)
        self._wrapped[handler_call_details.method] = (handler, made)
        return made


def _inner(handler: Any) -> Any:
    return (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )


def _unary(inner: Any, service: str, method: str) -> Any:
    async def handle(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        with _Call(service, method, context) as call:
            try:
                return await inner(request, context)
            except (Exception, asyncio.CancelledError) as error:
                await call.abort(error)

    return handle


def _streaming(inner: Any, service: str, method: str) -> Any:
    # It writes by itself: a cancel that meets a generator's caller, grpc, in the middle of a write
    # would end the call without any status, and leave its client waiting.
    async def handle(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        with _Call(service, method, context) as call:
            responses = inner(request, context)
            try:
                while True:
                    try:
                        response = await anext(responses)
                    except StopAsyncIteration:
                        return
                    except (Exception, asyncio.CancelledError) as error:
                        await call.abort(error)
                    try:
                        await context.write(response)
                    except asyncio.CancelledError as cancelled:
                        await call.abort(await _made_of(cancelled, responses))
            finally:
                await responses.aclose()

    return handle


async def _made_of(cancelled: asyncio.CancelledError, responses: Any) -> BaseException:
    """What the servicer makes of being cancelled: it may know the reason, and say so."""
    try:
        await responses.athrow(cancelled)
    except StopAsyncIteration:
        return cancelled
    except (Exception, asyncio.CancelledError) as error:
        return error
    else:
        return cancelled
    finally:
        del cancelled  # as in `_Call.abort`


# Looking a label up costs more than counting: its child is kept, as often as there are any.


@functools.lru_cache(256)
def _open(labels: tuple[str, str]) -> Gauge:
    return metrics.OPEN_CALLS.labels(*labels)


@functools.lru_cache(256)
def _seconds(labels: tuple[str, str]) -> Histogram:
    return metrics.CALL_SECONDS.labels(*labels)


@functools.lru_cache(1024)
def _calls(labels: tuple[str, str], code: str, reason: str) -> Counter:
    return metrics.CALLS.labels(*labels, code, reason)


def _span_of(labels: tuple[str, str], metadata: Iterable[tuple[str, str | bytes]]) -> Span:
    name = "/".join(labels)
    return tracing.take_call(name, metadata, {"rpc.system.name": "grpc", "rpc.method": name})


class _Call:
    """One call, from its metadata to its metrics."""

    def __init__(
        self, service: str, method: str, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        self._labels = (service, method)
        self._context = context
        self._code, self._reason = grpc.StatusCode.OK, ""
        self._began = 0.0
        self._span = tracing.NOTHING

    def __enter__(self) -> "_Call":
        metadata = self._context.invocation_metadata() or ()
        given = next((v for k, v in metadata if k == REQUEST_ID), "")
        if tracing.is_on():
            self._span = _span_of(self._labels, metadata)
        name = str(given)[:128] or uuid.uuid4().hex
        log.request_id.set(name)
        self._context.set_trailing_metadata(((REQUEST_ID, name),))
        _open(self._labels).inc()
        self._began = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._code is grpc.StatusCode.OK:
            self._code = grpc.StatusCode.CANCELLED  # the client has gone, or the server
        elapsed = time.monotonic() - self._began
        if self._span:
            self._end_span()
        _open(self._labels).dec()
        _seconds(self._labels).observe(elapsed)
        _calls(self._labels, self._code.name, self._reason).inc()
        log.get().debug(
            "call",
            method="/".join(self._labels),
            code=self._code.name,
            reason=self._reason,
            ms=round(elapsed * 1000, 1),
        )

    def _end_span(self) -> None:
        code, reason = self._code.name, self._reason
        self._span.tell({"rpc.response.status_code": code, "cohabit.reason": reason})
        self._span.end((reason or code.lower()) if self._code in _BROKEN else "")

    async def abort(self, error: BaseException) -> None:
        """End the call as `error` demands; always raises."""
        try:
            if isinstance(error, asyncio.CancelledError):
                self._code = grpc.StatusCode.CANCELLED
                raise error
            if isinstance(error, grpc.aio.AbortError):
                raise error
            fault = self._fault(error)
        finally:
            del error  # what it was raised through holds this frame: a cycle for every such call
        self._code, self._reason = fault.row.code, fault.reason.value
        trailers: list[tuple[str, str | bytes]] = [
            (REQUEST_ID, log.request_id.get()),
            (DETAILS_KEY, details_of(fault)),
        ]
        await self._context.abort(fault.row.code, fault.message, tuple(trailers))

    @staticmethod
    def _fault(error: BaseException) -> Fault:
        if isinstance(error, Fault):
            return error
        if isinstance(error, grpc.aio.AioRpcError):
            return fault_of(error, "next")
        log.get().error("bug", exc_info=error)
        return Fault(Reason.INTERNAL, "Something went wrong inside Cohabit; its log says what.")
