"""Faults on their way to a client: status and headers here, the words in the dialect's `speech`.

What waiting can mend says when (`retry-after` in whole seconds, `retry-after-ms`); what it cannot
tells clients, which retry 409, 429 and 5xx by themselves, not to.
"""

import math
from collections.abc import Callable
from contextvars import ContextVar

from starlette.requests import Request
from starlette.responses import Response

from chassis import log
from chassis.errors import Fault, Reason
from edge import speech
from edge.speech import PARAM

failure: ContextVar[Reason | None] = ContextVar("failure", default=None)
"""How the request being served by the current task failed, for the access layer."""

told: ContextVar[Fault | None] = ContextVar("told", default=None)
"""What its client was told of that, if anything."""


def bad_field(param: str | None, message: str, reason: Reason = Reason.INVALID_REQUEST) -> Fault:
    """A refusal of one field of the request; `param` names it as the client wrote it."""
    return Fault(reason, message, metadata={PARAM: param} if param else None)


def model_not_found(name: str) -> Fault:
    """The refusal of a model nobody has."""
    message = f"The model `{name}` does not exist; GET /v1/models lists those that do."
    return Fault(Reason.MODEL_NOT_FOUND, message)


def renamed(fault: Fault, name_of: Callable[[str], str]) -> Fault:
    """The fault with its field as the client calls it; `name_of`: by the engine's name."""
    param = fault.metadata.get(PARAM, "")
    name = name_of(param)
    if name == param:
        return fault
    return Fault(
        fault.reason,
        fault.message.replace(f"`{param}`", f"`{name}`"),
        retry_after_s=fault.retry_after_s,
        metadata={**fault.metadata, PARAM: name},
    )


def stopping() -> Fault:
    """What ends the requests that outlive the patience of an edge that is told to stop."""
    message = "The edge is being stopped; try again shortly."
    return Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)


def envelope(fault: Fault) -> bytes:
    """The body that tells of `fault`."""
    return speech.current.get().envelope(fault, log.request_id.get())


def event(fault: Fault) -> bytes:
    """The server-sent event that tells of `fault` after the headers."""
    _note(fault)
    return speech.current.get().event(fault, log.request_id.get())


def response(fault: Fault) -> Response:
    """The whole HTTP answer that tells of `fault`."""
    _note(fault)
    status = fault.row.http
    headers = {}
    if status == 401:
        headers["www-authenticate"] = 'Bearer realm="cohabit"'
    if fault.retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(fault.retry_after_s)))
        headers["retry-after-ms"] = str(max(1, round(fault.retry_after_s * 1000)))
    elif status in (408, 409, 429) or status >= 500:
        headers["x-should-retry"] = "false"
    return Response(envelope(fault), status, headers, media_type="application/json")


def _note(fault: Fault) -> None:
    failure.set(fault.reason)
    told.set(fault)


def internal(error: BaseException) -> Fault:
    """What a client is told of a bug of ours; the log gets the rest."""
    log.get().error("bug", exc_info=error)
    return bug()


def bug() -> Fault:
    """The same for who has nothing to log."""
    return Fault(Reason.INTERNAL, "Something went wrong inside Cohabit; its log says what.")


async def on_fault(_request: Request, error: Exception) -> Response:
    """Exception handler for Fault."""
    assert isinstance(error, Fault)  # noqa: S101 - what it is registered for
    return response(error)


async def on_bug(_request: Request, _error: Exception) -> Response:
    """Exception handler for anything else; the access layer, which sees it next, logs it."""
    return response(bug())
