"""How Anthropic's dialect says what is no answer: a fault, and that nothing comes yet.

    {"type": "error", "error": {"type", "message", "details"}, "request_id"}

Statuses are those of every dialect. Anthropic's own word for "come back later" is 529 where ours
is 503: its clients retry both alike, after the same `retry-after`, and the type in the body is
`overloaded_error` for both.
"""

import msgspec

from chassis.errors import Fault
from edge.anthropic.events import PING
from edge.speech import Speech, comment


class AnthropicErrorDetails(msgspec.Struct):
    """For machines: what they may tell apart beyond the type."""

    error_code: str


class AnthropicErrorObject(msgspec.Struct):
    """What went wrong, for people (`message`) and machines."""

    type: str
    message: str
    details: AnthropicErrorDetails


class AnthropicError(msgspec.Struct, tag_field="type", tag="error"):
    """The body of every answer that is an error."""

    error: AnthropicErrorObject
    request_id: str


_encode = msgspec.json.Encoder().encode


def _envelope(fault: Fault, request_id: str) -> bytes:
    details = AnthropicErrorDetails(fault.reason.value)
    error = AnthropicErrorObject(fault.row.anthropic_type, fault.message, details)
    return _encode(AnthropicError(error, request_id))


def _event(fault: Fault, request_id: str) -> bytes:
    return b"event: error\ndata: " + _envelope(fault, request_id) + b"\n\n"


def _ping(why: str) -> bytes:
    # The words are for who reads the stream by eye.
    return comment(why) + PING if why else PING


ANTHROPIC = Speech(_envelope, _event, _ping, id_headers=(b"x-request-id", b"request-id"))
