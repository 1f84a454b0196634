"""Who may use the admin routes: people on the machine itself, and nobody through anything.

The socket's peer says where a call comes from. A header that claims something else is written by
whoever sends it, so that a call which carries one is refused: it came through a proxy, behind which
anybody may stand. That a proxy beside us has a loopback address makes it no person on the machine.
A page in a browser on this machine is refused, too: its `origin` is elsewhere, or it calls this
machine by a name of its own.
"""

from urllib.parse import urlsplit

from starlette.requests import Request

from chassis.errors import Fault, Reason
from edge.loopback import is_loopback

_FORWARDED = frozenset(
    (
        *("forwarded", "via", "client-ip", "true-client-ip", "fastly-client-ip", "fly-client-ip"),
        *("x-client-ip", "x-cluster-client-ip", "x-remote-ip", "x-remote-addr", "x-host"),
        *("x-proxyuser-ip", "x-azure-clientip", "x-azure-socketip", "x-request-start", "cdn-loop"),
    )
)
_FORWARDING = (
    *("x-forwarded", "x-original-", "x-real-", "x-envoy-", "x-rewrite-"),
    *("cf-", "x-amz-cf-", "x-amzn-", "x-appengine-", "x-goog-", "x-nginx-", "x-proxy-"),
)
"""How the names begin of headers that proxies and clouds add in families."""
_OWN_PAGES = frozenset(("none", "same-origin", "same-site"))


async def check_local(request: Request) -> None:
    """Raises Fault LOCAL_ONLY."""
    headers = request.headers
    if request.client is None or not is_loopback(request.client.host):
        raise _refused("they are answered on this machine alone")
    if passed := sorted(filter(_is_forwarding, headers)):
        raise _refused(f"the request came through a proxy (`{passed[0]}`); call the edge itself")
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not is_loopback(_host(f"http://{hosts[0]}")):
        raise _refused("call the edge by a loopback address, not by another name")
    if not all(is_loopback(_host(origin)) for origin in headers.getlist("origin")):
        raise _refused("the request was made by a page from elsewhere")
    if headers.get("sec-fetch-site", "none") not in _OWN_PAGES:
        raise _refused("the request was made by a page from elsewhere")


def _is_forwarding(name: str) -> bool:
    # Some proxies write underscores where others read dashes.
    plain = name.lower().replace("_", "-")
    return plain in _FORWARDED or plain.startswith(_FORWARDING)


def _host(url: str) -> str:
    """The host of an origin; empty for what is none, such as one with a user or a path."""
    try:
        parts = urlsplit(url)
        plain = url == f"{parts.scheme}://{parts.netloc}" and "@" not in parts.netloc
        return (parts.hostname or "") if plain else ""
    except ValueError:
        return ""


def _refused(why: str) -> Fault:
    return Fault(Reason.LOCAL_ONLY, f"The admin routes are closed to this request: {why}.")
