"""How each dialect says what is no answer: a fault, and that nothing comes yet.

`current` is the one of the request being served; the access layer sets it by the request's path,
before anything can fail. OpenAI's is the default, and the one of every route that has none:

    {"error": {"message", "type", "param", "code"}}

`param` comes from the fault's metadata, and for two reasons is known without.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

import msgspec

from chassis.errors import Fault, Reason

PARAM = "param"
"""Key in Fault.metadata: the field of the request that is at fault."""

_PARAMS = {
    Reason.MODEL_NOT_FOUND: "model",
    Reason.CONTEXT_LENGTH_EXCEEDED: "messages",
}


@dataclass(frozen=True, slots=True)
class Speech:
    """One dialect's way to say it."""

    envelope: Callable[[Fault, str], bytes]
    """The JSON body that tells of a fault; with the request's id."""
    event: Callable[[Fault, str], bytes]
    """The server-sent event that tells of it after the headers."""
    keepalive: Callable[[str], bytes]
    """What keeps a silent stream open; the words, one line, say why it is silent, or nothing."""
    id_headers: tuple[bytes, ...] = (b"x-request-id",)
    """The headers that tell the request's id."""


class ErrorDetail(msgspec.Struct):
    """What went wrong, for people (`message`) and machines."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorEnvelope(msgspec.Struct):
    """The body of every answer that is an error."""

    error: ErrorDetail


_encode = msgspec.json.Encoder().encode


def _envelope(fault: Fault, _request_id: str) -> bytes:
    row = fault.row
    param = fault.metadata.get(PARAM) or _PARAMS.get(fault.reason)
    return _encode(
        ErrorEnvelope(ErrorDetail(fault.message, row.openai_type, param, row.openai_code))
    )


def _event(fault: Fault, request_id: str) -> bytes:
    return b"data: " + _envelope(fault, request_id) + b"\n\n"


def comment(why: str) -> bytes:
    """A line that every reader of server-sent events passes over."""
    said = f": keepalive {why}" if why else ": keepalive"
    return said.encode() + b"\n\n"


OPENAI = Speech(_envelope, _event, comment)

current: ContextVar[Speech] = ContextVar("speech", default=OPENAI)
"""Of the request being served by the current task."""
