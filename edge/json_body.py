"""JSON bodies into typed structs, with errors that say where: shared by all dialects.

msgspec checks types and ranges while it parses; this turns what it says into a Fault whose
`param` is the field as the client wrote it (`messages[0].role`).
"""

import re
from typing import Any, TypeVar

import msgspec

from chassis.errors import Fault, Reason
from edge.errors import bad_field

T = TypeVar("T")

_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>[^`]*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING = re.compile(r"missing required field `(?P<name>.*)`")
_MOST_QUOTED_CHARS = 200
_MOST_INERT_BYTES = 64
_MOST_OBJECT_BYTES = 1024 * 1024


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """`body` as the decoder's type. Raises Fault: malformed_json or invalid_request."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _misfit(str(error)) from None
    except msgspec.DecodeError as error:
        raise _malformed(str(error), body) from None
    except RecursionError:
        raise bad_field(None, "The request body is nested too deeply.") from None


def decode_part(decoder: msgspec.json.Decoder[T], part: msgspec.Raw, at: str) -> T:
    """A part of a body that was left raw, at `at`, as the decoder's type. Raises Fault."""
    try:
        return decoder.decode(part)
    except msgspec.ValidationError as error:
        raise _misfit(str(error), at) from None
    except RecursionError:  # the stack may be deeper now than where the whole was read
        raise bad_field(at, f"`{at}` is nested too deeply.") from None


def convert(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """What was decoded without a type, as `kind`. Raises Fault.

    Not strict: texts are read as what they stand for, as in a form they must be.
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise _misfit(str(error)) from None


def _misfit(said: str, at: str = "") -> Fault:
    match = _PLACE.match(said)
    what, path = (match["what"], match["path"] or "") if match else (said, "")
    path = (at + path).lstrip(".")
    if unknown := _UNKNOWN.search(what):
        name = unknown["name"][:_MOST_QUOTED_CHARS]
        param = f"{path}.{name}" if path else name
        return bad_field(param, f"Unknown field `{param}`; remove it or correct its name.")
    if missing := _MISSING.search(what):
        param = f"{path}.{missing['name']}" if path else missing["name"]
        return bad_field(param, f"`{param}` is missing.")
    what = what[:1].lower() + what[1:_MOST_QUOTED_CHARS]
    if not path:
        return bad_field(None, f"The request body is not as expected: {what}.")
    path = path[:_MOST_QUOTED_CHARS]
    return bad_field(path, f"Invalid value for `{path}`: {what}.")


def _malformed(said: str, body: bytes) -> Fault:
    # Two of msgspec's messages carry no position; both have one that can be told.
    if said.startswith("Input data was truncated"):
        said = f"JSON is malformed: it ends too early (byte {len(body)})"
    elif said.startswith("Invalid UTF-8"):
        said = f"JSON is malformed: not UTF-8 (byte {_first_bad_byte(body)})"
    message = f"The request body is not valid JSON. {said}."
    return Fault(Reason.MALFORMED_JSON, message)


def _first_bad_byte(body: bytes) -> int:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(body)


def asks_for_nothing(value: Any, inert: tuple[Any, ...]) -> bool:
    """Whether a field is unset or one of `inert`. What is raw is looked into if it is short."""
    if isinstance(value, msgspec.Raw):
        if memoryview(value).nbytes > _MOST_INERT_BYTES:
            return False
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return False
    return value is msgspec.UNSET or value in inert


def object_text(raw: msgspec.Raw, at: str) -> str:
    """The text of a JSON object that is handed on as it is. Raises Fault.

    The decoder has passed over what is raw: only here is it known to be well-formed.
    """
    if memoryview(raw).nbytes > _MOST_OBJECT_BYTES:
        raise bad_field(
            at, f"`{at}` is larger than {_MOST_OBJECT_BYTES} bytes; send a smaller one."
        )
    try:
        if isinstance(msgspec.json.decode(raw), dict):
            return bytes(raw).decode()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    raise bad_field(at, f"`{at}` must be a JSON object, well-formed and not nested too deeply.")
