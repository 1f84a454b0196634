"""The address that this host has towards another: where those on that side can dial it.

For hosts that cannot know beforehand which it will be, as in containers.
"""

import asyncio
import socket
from collections.abc import Iterable, Sequence
from typing import Any

from chassis.errors import Fault, Reason

_RESOLVE_S = 5.0
_LOOPBACK = "127.0.0.1"


async def address_towards(target: str) -> str:
    """By the route to a gRPC target; nothing is sent. IPv6 stands in brackets.

    Towards a Unix socket it is the loopback address: whoever is there is on this host. Raises
    Fault MODEL_FAILED when the target has no address, or no route.
    """
    if target.startswith("unix:"):
        return _LOOPBACK
    host, _, port = target.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_RESOLVE_S):
            found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        return in_target(_source_of(found))
    except (OSError, TimeoutError) as error:
        raise Fault(
            Reason.MODEL_FAILED,
            f"This host's address towards the scheduler at {target} cannot be found "
            f"({_why(error)}); mend the name or the network, or set engine_host to an address.",
            retry_after_s=1.0,
        ) from None


def in_target(host: str) -> str:
    """A host as it stands before `:port`."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _source_of(found: Iterable[Sequence[Any]]) -> str:
    """The first that has a route decides, as it does for connections."""
    last: OSError = OSError("no address")
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(address)  # of a datagram socket: looks up the route, sends nothing
            except OSError as error:
                last = error
                continue
            return str(probe.getsockname()[0])
    raise last


def _why(error: OSError | TimeoutError) -> str:
    if isinstance(error, TimeoutError) and not error.args:
        return "it is not resolved in time"
    return str(getattr(error, "strerror", None) or error)
