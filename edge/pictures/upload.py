"""Bodies that may bring files: multipart/form-data, or a JSON object, read into one `Form`.

A form is parsed while it arrives and is never held twice. Whatever has no form's content type is
read as JSON. What the fields mean, and what a file holds, is for others to say.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.requests import Request

from chassis.errors import Fault, Reason
from edge import json_body
from edge.body import MIB, Room
from edge.errors import bad_field

MOST_FILE_BYTES = 80 * MIB
MOST_PARTS = 64
_MOST_HEADERS = 8
_MOST_HEADER_BYTES = 4096
_MOST_NAME_CHARS = 100
_FORM = b"multipart/form-data"
_AT_ONCE_BYTES = 256 * 1024
"""Parsed at once, on a thread: a hostile form is looked at byte by byte."""

# It warns of every broken form, whose sender is told anyway.
logging.getLogger("python_multipart").setLevel(logging.ERROR)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Upload:
    """A file of a form."""

    data: bytes
    mime_type: str
    """As the client says."""
    filename: str


@dataclass(frozen=True, slots=True)
class Form:
    """What a request brings. `name[]` is told as `name`."""

    fields: Mapping[str, Any]
    """Of a form: text, or a list of texts where the name was `name[]`; of JSON: as it was."""
    files: Mapping[str, Sequence[Upload]] = field(default_factory=dict)
    typed: bool = True
    """The fields have types of their own; in a form they are all text."""

    def read_as(self, kind: type[T], in_json: Collection[str] = ()) -> T:
        """The fields as a struct. Raises Fault.

        `in_json`: fields that are lists or objects, which a form tells as a text of JSON.
        """
        if self.typed:
            return json_body.convert(dict(self.fields), kind)
        told = {name: _read(name, text, in_json) for name, text in self.fields.items()}
        return json_body.convert(told, kind, strict=False)


async def read_form(request: Request, room: Room) -> Form:
    """The body of `request`. Raises Fault: too large, too slow, malformed, client gone."""
    told, options = parse_options_header(request.headers.get("content-type"))
    if told != _FORM:
        raw = await room.read(request)
        return await asyncio.to_thread(_from_json, raw)
    reader = FormReader(options.get(b"boundary", b""))
    waiting = bytearray()

    async def keep(part: bytes) -> None:
        waiting.extend(part)
        if len(waiting) >= _AT_ONCE_BYTES:
            await asyncio.to_thread(reader.feed, bytes(waiting))
            waiting.clear()

    await room.read_into(request, keep)
    await asyncio.to_thread(reader.feed, bytes(waiting))
    return reader.form()


class FormReader:
    """Takes a form's bytes as they come. Every method raises Fault where they are no form."""

    def __init__(self, boundary: bytes) -> None:
        if not boundary:
            raise _no_form("its content-type names no boundary")
        calls: Any = {
            "on_part_begin": self._begin,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._over,
        }
        try:
            self._parser = MultipartParser(
                boundary,
                calls,
                max_header_count=_MOST_HEADERS,
                max_header_size=_MOST_HEADER_BYTES,
            )
        except FormParserError:
            raise _no_form("its boundary is longer than any may be") from None
        self._fields: dict[str, Any] = {}
        self._files: dict[str, list[Upload]] = {}
        self._parts = 0
        self._done = False
        self._headers: dict[bytes, bytes] = {}
        self._name = self._value = b""
        self._part = _Part()

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise _no_form(str(error)[:200]) from None

    def form(self) -> Form:
        """All of it."""
        if not self._done:
            raise _no_form("it ends before its last boundary")
        return Form(self._fields, self._files, typed=False)

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            message = f"The form has more than {MOST_PARTS} parts; send fewer."
            raise bad_field(None, message, Reason.PAYLOAD_TOO_LARGE)
        self._headers = {}

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _headers_end(self) -> None:
        self._part = _part_of(self._headers)

    def _data(self, data: bytes, start: int, end: int) -> None:
        part = self._part
        part.data += memoryview(data)[start:end]
        if len(part.data) > MOST_FILE_BYTES:
            message = f"`{part.name}` is larger than {MOST_FILE_BYTES // MIB} MiB; send less."
            raise bad_field(part.name, message, Reason.PAYLOAD_TOO_LARGE)

    def _end(self) -> None:
        part, self._part = self._part, _Part()
        if part.filename is not None and (part.filename or part.data):
            upload = Upload(bytes(part.data), part.mime_type, part.filename)
            self._files.setdefault(part.name, []).append(upload)
        elif part.data:  # what was left empty was left out
            self._add(part)

    def _add(self, part: "_Part") -> None:
        try:
            text = part.data.decode()
        except UnicodeDecodeError:
            raise bad_field(part.name, f"`{part.name}` is not UTF-8; write it so.") from None
        if part.listed:
            self._fields.setdefault(part.name, []).append(text)
        elif part.name in self._fields:
            message = f"`{part.name}` is there twice; a list is written `{part.name}[]`."
            raise bad_field(part.name, message)
        else:
            self._fields[part.name] = text

    def _over(self) -> None:
        self._done = True


@dataclass(slots=True)
class _Part:
    name: str = ""
    listed: bool = False
    filename: str | None = None
    mime_type: str = ""
    data: bytearray = field(default_factory=bytearray)


def _part_of(headers: Mapping[bytes, bytes]) -> _Part:
    kind, options = parse_options_header(headers.get(b"content-disposition"))
    raw = options.get(b"name", b"")
    if kind != b"form-data" or not raw:
        raise _no_form("a part of it has no name")
    name = raw.decode(errors="replace")
    if len(name) > _MOST_NAME_CHARS:
        raise _no_form(f"a part's name is longer than {_MOST_NAME_CHARS} characters")
    if b"content-transfer-encoding" in headers:
        raise _no_form(f"`{name}` has a transfer encoding; send its bytes as they are")
    filename = options.get(b"filename")
    return _Part(
        name=name.removesuffix("[]"),
        listed=name.endswith("[]"),
        filename=None if filename is None else filename.decode(errors="replace"),
        mime_type=headers.get(b"content-type", b"").decode("latin-1"),
    )


def _no_form(why: str) -> Fault:
    return bad_field(None, f"The body is no multipart form: {why}.")


def _from_json(raw: bytes) -> Form:
    fields: dict[str, Any] = json_body.decode(_object, raw)
    return Form(fields)


_object = msgspec.json.Decoder(dict[str, Any])


def _read(name: str, told: Any, in_json: Collection[str]) -> Any:
    if name not in in_json or not isinstance(told, str):
        return told
    try:
        return msgspec.json.decode(told)
    except (msgspec.DecodeError, RecursionError):
        raise bad_field(name, f"`{name}` must be JSON in a form.") from None
