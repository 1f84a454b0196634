"""Fetches pictures from http(s) URLs, within bounds, and from public addresses alone.

Each hop, the first as every redirect, is resolved here, every address judged, and the connection
made to an address that was judged: a name that answers differently the next time changes nothing.
No proxy and no credentials of this machine are used, nothing is kept between two fetches, and what
comes is never decompressed. What the bytes are is for others to say.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from chassis.errors import Reason
from edge.body import MIB
from edge.config import EdgeConfig
from edge.errors import bad_field
from edge.pictures import addresses

MOST_URL_CHARS = 4096
_USUAL_PORTS = {"http": 80, "https": 443}
_MOST_AT_ONCE = 16
_RESOLVERS = 8
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_HEADERS = {"accept": "image/*", "accept-encoding": "identity", "user-agent": "cohabit"}

Hold = Callable[[int], None]
"""Accounts for so many more bytes. Raises Fault."""


@dataclass(frozen=True, slots=True)
class FetchRules:
    """What is fetched at all."""

    max_bytes: int
    within_s: float
    """Of the name's resolution, every redirect, and the last byte, together."""
    redirects: int
    allow_private: bool = False
    """Any address, and any port."""
    allow_hosts: frozenset[str] = frozenset()
    """Hosts of which any address and any port will do."""

    def lifted(self, host: str) -> bool:
        """Whether addresses and ports of `host` are not judged."""
        return self.allow_private or host in self.allow_hosts


def rules_of(config: EdgeConfig) -> FetchRules:
    """As configured."""
    return FetchRules(
        max_bytes=config.fetch_max_mib * MIB,
        within_s=config.fetch_within_s,
        redirects=config.fetch_redirects,
        allow_private=config.fetch_allow_private,
        allow_hosts=frozenset(host.lower() for host in config.fetch_allow_hosts),
    )


class Fetch:
    """Fetches; at most 16 at once, the others wait within their own time."""

    def __init__(self, rules: FetchRules) -> None:
        self._rules = rules
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)
        # Names that nobody answers for hold up no other work that is done on threads.
        self._resolvers = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="resolve")
        # Connections are not kept: one that was made for a host may serve no other of its address.
        self._transport = httpx.AsyncHTTPTransport(
            verify=ssl.create_default_context(),
            trust_env=False,
            limits=httpx.Limits(max_connections=_MOST_AT_ONCE, max_keepalive_connections=0),
        )

    async def close(self) -> None:
        """Close what is open."""
        await self._transport.aclose()
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    async def picture(self, url: str, param: str, hold: Hold) -> bytes:
        """The bytes behind `url`. Raises Fault, its `param` the field that holds the URL."""
        within_s = self._rules.within_s
        try:
            async with asyncio.timeout(within_s), self._places:
                return await self._follow(_read(url), hold)
        except TimeoutError:
            refused = _RefusedError(f"it was not there within {within_s:g} s")
        except _RefusedError as error:
            refused = error
        except httpx.HTTPError as error:
            refused = _RefusedError(f"the connection failed ({type(error).__name__})")
        told = (
            f"The URL in `{param}` is not fetched: {refused}; send another, or the picture itself."
        )
        raise bad_field(param, told, refused.reason)

    async def _follow(self, url: httpx.URL, hold: Hold) -> bytes:
        for _ in range(self._rules.redirects + 1):
            answer = await self._ask(url)
            try:
                if answer.status_code not in _REDIRECTS:
                    return await self._body(answer, hold)
                url = _read(_place(answer), url)
            finally:
                await answer.aclose()
        raise _RefusedError(f"it redirects more than {self._rules.redirects} times")

    async def _ask(self, url: httpx.URL) -> httpx.Response:
        failed = httpx.ConnectError("no address")
        for address in await self._judged(url):
            try:
                return await self._transport.handle_async_request(_request(url, address))
            except httpx.ConnectError as error:  # it may be reached by another
                failed = error
        raise failed

    async def _judged(self, url: httpx.URL) -> list[str]:
        """The addresses of the host, all of which may be connected to."""
        lifted = self._rules.lifted(url.host)
        port = _USUAL_PORTS[url.scheme] if url.port is None else url.port
        if not lifted and port not in _USUAL_PORTS.values():
            raise _RefusedError(f"port {port} is neither 80 nor 443")
        found = await self._resolve(url.raw_host.decode("ascii"), port)
        for address in () if lifted else found:
            if what := addresses.refusal(address):
                raise _RefusedError(f"its host is {what}")
        return found

    async def _resolve(self, host: str, port: int) -> list[str]:
        def look() -> list[str]:
            told = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return [str(sockaddr[0]) for *_, sockaddr in told]

        try:
            found = await asyncio.get_running_loop().run_in_executor(self._resolvers, look)
        except (OSError, UnicodeError):
            found = []
        if not found:
            raise _RefusedError("its host has no address")
        return found

    async def _body(self, answer: httpx.Response, hold: Hold) -> bytes:
        if answer.status_code != 200:
            raise _RefusedError(f"it was answered with status {answer.status_code}")
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise _RefusedError("it comes compressed, though it was asked for as it is")
        declared = answer.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self._rules.max_bytes:
            raise self._too_large()
        whole = bytearray()
        async for part in answer.aiter_raw():
            if len(whole) + len(part) > self._rules.max_bytes:
                raise self._too_large()
            hold(len(part))
            whole += part
        return bytes(whole)

    def _too_large(self) -> "_RefusedError":
        most = self._rules.max_bytes // MIB
        return _RefusedError(f"it is larger than {most} MiB", Reason.PAYLOAD_TOO_LARGE)


class _RefusedError(Exception):
    """Why a URL is not fetched; ends the sentence that tells it."""

    def __init__(self, why: str, reason: Reason = Reason.INVALID_REQUEST) -> None:
        super().__init__(why)
        self.reason = reason


def _read(text: str, base: httpx.URL | None = None) -> httpx.URL:
    """A URL that may be asked for, but for its address and port; `base`: that redirects to it."""
    if len(text) > MOST_URL_CHARS:
        raise _RefusedError(f"it is longer than {MOST_URL_CHARS} characters")
    try:
        url = httpx.URL(text) if base is None else base.join(text)
        host = url.host  # which only now is read
    except (httpx.InvalidURL, ValueError):
        raise _RefusedError("it is no valid URL") from None
    if url.scheme not in _USUAL_PORTS:
        raise _RefusedError("only http and https are spoken")
    if not host:
        raise _RefusedError("it names no host")
    if url.userinfo:
        raise _RefusedError("it holds credentials, which are not passed on")
    return url


def _request(url: httpx.URL, address: str) -> httpx.Request:
    """For `url`, to be sent to `address` and nowhere else."""
    return httpx.Request(
        "GET",
        url.copy_with(host=address, fragment=None),
        headers={**_HEADERS, "host": url.netloc.decode("ascii")},
        # The certificate has to be the host's, whatever address it is reached by.
        extensions={"sni_hostname": url.raw_host.decode("ascii")},
    )


def _place(answer: httpx.Response) -> str:
    place: str = answer.headers.get("location", "")
    if not place:
        raise _RefusedError("it redirects to nowhere")
    return place


def is_url(text: str) -> bool:
    """Whether a text is a URL to fetch rather than a picture in words."""
    return text[:8].lower().startswith(("http://", "https://"))
