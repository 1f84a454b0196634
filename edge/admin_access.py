"""Who may use the admin routes: people on the machine itself, and nobody through anything.

The socket's peer says where a call comes from. A header that claims something else is written by
whoever sends it, so that a call which carries one is refused: it came through a proxy, behind which
anybody may stand. A page in a browser on this machine is refused, too: its `origin` is elsewhere,
or it calls this machine by a name of its own.
"""

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request

from chassis.errors import Fault, Reason

_FORWARDED = frozenset(
    ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
)


async def check_local(request: Request) -> None:
    """Raises Fault LOCAL_ONLY."""
    headers = request.headers
    if request.client is None or not is_loopback(request.client.host):
        raise _refused("they are answered on this machine alone")
    if passed := sorted(_FORWARDED & {name.lower() for name in headers}):
        raise _refused(f"the request came through a proxy (`{passed[0]}`); call the edge itself")
    if not is_loopback(_host(f"//{headers.get('host', '')}")):
        raise _refused("call the edge by a loopback address, not by another name")
    if "origin" in headers and not is_loopback(_host(headers["origin"])):
        raise _refused("the request was made by a page from elsewhere")


def is_loopback(host: str) -> bool:
    """Whether a host, by name or address, is this machine."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _refused(why: str) -> Fault:
    return Fault(Reason.LOCAL_ONLY, f"The admin routes are closed to this request: {why}.")
