"""Which bytes of a result a request wants: Range, If-Range and If-None-Match of RFC 9110. Pure.

One range is served; several in one request, and what cannot be read, are answered with the whole,
as the RFC allows.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_RANGE = re.compile(r"bytes=(?P<first>\d{0,19})-(?P<last>\d{0,19})", re.ASCII | re.IGNORECASE)
_TAG = re.compile(r'(?:W/)?("[^"]*")')


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `first` up to, and without, `end`."""

    first: int
    end: int


class UnchangedError(Exception):
    """The client has these bytes already: 304."""


class UnsatisfiableError(Exception):
    """There is no such byte: 416."""


def etag_of(sha256: bytes) -> str:
    """A result never changes, so that its hash names it."""
    return f'"{sha256.hex()}"'


def wanted_span(headers: Mapping[str, str], size_bytes: int, etag: str) -> Span | None:
    """The part that is wanted; None: the whole. Raises UnchangedError, UnsatisfiableError."""
    if (known := headers.get("if-none-match")) is not None and _holds(known, etag):
        raise UnchangedError
    match = _RANGE.fullmatch(headers.get("range", "").replace(" ", ""))
    if match is None or headers.get("if-range", etag) != etag:
        return None
    return _span(match["first"], match["last"], size_bytes)


def _span(first: str, last: str, size_bytes: int) -> Span | None:
    if not first and not last:
        return None
    if not first:  # the last so many bytes
        if not int(last) or not size_bytes:
            raise UnsatisfiableError
        return Span(max(0, size_bytes - int(last)), size_bytes)
    if last and int(last) < int(first):
        return None
    if int(first) >= size_bytes:
        raise UnsatisfiableError
    return Span(int(first), min(size_bytes, int(last) + 1) if last else size_bytes)


def _holds(known: str, etag: str) -> bool:
    return known.strip() == "*" or etag in _TAG.findall(known)
