"""One file over HTTP into a part: streamed, resumed, retried, its space checked before it comes.

Resuming follows RFC 9110, sections 13.1.5 and 14: a Range with If-Range where the server gave a
strong validator; a server that answers with the whole file starts the part anew.
"""

import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

from chassis.backoff import Backoff
from cli.console import Refused, note
from cli.parts import Part, ensure_room
from cli.progress import progress

RETRY = Backoff(first_s=0.5, factor=2.0, most_s=8.0)
RETRIES = 5
"""Failures in a row, without a byte of progress between, that end a pull."""
_TIMEOUT = httpx.Timeout(30.0, connect=15.0)
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Remote:
    """A file to get. `label` stands for it in every message; URLs may hold secrets."""

    label: str
    url: str = field(repr=False)
    sha256: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    unpacked: bool = False
    """About as much space again is needed to unpack it."""


class _Lost(Exception):
    """This attempt has failed and another one may not."""


def open_client() -> httpx.Client:
    """A client for downloads; certificates as OpenSSL and SSL_CERT_FILE have them."""
    context = ssl.create_default_context()
    return httpx.Client(follow_redirects=True, timeout=_TIMEOUT, verify=context)


def fetch(remote: Remote, part: Part, client: httpx.Client) -> None:
    """Complete `part` from `remote` and check its hash. Raises Refused; the part then stays."""
    if remote.sha256 is not None and part.sha256 == remote.sha256:
        return
    failures, furthest, expected = 0, part.done, remote.sha256
    while True:
        try:
            expected = _attempt(remote, part, client) or expected
            break
        except (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.TooManyRedirects) as error:
            raise Refused(f"{remote.label} has no usable address: {error}.") from None
        except (httpx.TransportError, _Lost) as error:
            failures = 1 if part.done > furthest else failures + 1
            furthest = max(furthest, part.done)
            cause = str(error) or type(error).__name__
        if failures > RETRIES:
            raise Refused(f"{remote.label} could not be fetched: {cause}; run it again to resume.")
        delay_s = RETRY.delay_s(failures)
        note(f"{remote.label}: {cause}; trying again in {delay_s:.1f} s")
        time.sleep(delay_s)
    part.check(expected, remote.label)


def _attempt(remote: Remote, part: Part, client: httpx.Client) -> str | None:
    """One request; answers the hash the server stated, if none was known before."""
    if part.done and not part.validator and remote.sha256 is None:
        part.restart()  # nothing could tell a mixture of two versions
    with client.stream("GET", remote.url, headers=_headers(remote, part)) as response:
        stated = remote.sha256 or _linked_sha256(response)
        if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            _check_complete(response, part)
            return stated
        _check_status(response, remote.label)
        total = _total(response, part)
        if total is not None:
            unpacking = total if remote.unpacked else 0
            ensure_room(part.path.parent, total - part.done + unpacking)
        with progress(remote.label, total, part.done) as advance:
            # As it comes: asked for chunks, httpx would lose what a cut connection leaves of one.
            for data in response.iter_raw():
                part.write(data)
                advance(len(data))
    if total is not None and part.done != total:
        raise _Lost(f"{part.done} bytes of {total} came")
    return stated


def _headers(remote: Remote, part: Part) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity", **remote.headers}
    if part.done:
        headers["Range"] = f"bytes={part.done}-"
        if part.validator and not part.validator.startswith("W/"):
            headers["If-Range"] = part.validator
    return headers


def _total(response: httpx.Response, part: Part) -> int | None:
    """The size of the whole file; the part is made to fit what will come."""
    validator = response.headers.get("etag") or response.headers.get("last-modified") or ""
    length = response.headers.get("content-length")
    if response.status_code == httpx.codes.PARTIAL_CONTENT:
        match = _CONTENT_RANGE.match(response.headers.get("content-range", ""))
        fits = match is not None and match[1] is not None and int(match[1]) == part.done
        if not fits or validator != part.validator:
            part.restart()
            raise _Lost("the file has changed on the server")
        return int(length) + part.done if length else None
    part.restart()
    part.remember(validator)
    return int(length) if length else None


def _check_complete(response: httpx.Response, part: Part) -> None:
    """After "range not satisfiable": either all bytes are here, or they are of another file."""
    match = _CONTENT_RANGE.match(response.headers.get("content-range", ""))
    if match is None or match[2] != str(part.done):
        part.restart()
        raise _Lost("the file has changed on the server")


def _check_status(response: httpx.Response, label: str) -> None:
    code = response.status_code
    if code in _TRANSIENT:
        raise _Lost(f"the server answered {code}")
    if code == httpx.codes.NOT_FOUND:
        raise Refused(f"{label} does not exist (404); check owner, names and revision.")
    if code in {401, 403}:
        raise Refused(f"{label} may not be read ({code}); a gated model needs HF_TOKEN to be set.")
    if code not in {200, 206}:
        raise Refused(f"{label} could not be fetched: the server answered {code}.")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise Refused(f"{label} comes compressed, which was not asked for; it cannot be checked.")


def _linked_sha256(response: httpx.Response) -> str | None:
    """The hash a model hub states for a large file, on any answer of the redirects."""
    for answer in (*response.history, response):
        stated = str(answer.headers.get("x-linked-etag", ""))
        tag = stated.removeprefix("W/").strip('"').lower()
        if _SHA256.fullmatch(tag):
            return tag
    return None
