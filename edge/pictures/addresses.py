"""Which network addresses pictures may be fetched from: public ones. Pure.

A caller who names a URL borrows the edge's place in the network. So nothing is reached that only
those inside can reach, in no notation: it is the resolved address that is judged, never a name,
and addresses that stand for another (mapped, translated, tunnelled) are refused as such.
"""

import ipaddress
from collections.abc import Callable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _within(*networks: str) -> Callable[[Address], bool]:
    known = [ipaddress.ip_network(network) for network in networks]
    return lambda address: any(address in network for network in known)


# The first that fits is told.
_RULES: tuple[tuple[str, Callable[[Address], bool]], ...] = (
    ("an unspecified address", lambda address: address.is_unspecified),
    ("a loopback address", lambda address: address.is_loopback),
    ("an IPv4 address in the notation of IPv6", _within("::ffff:0:0/96", "::/96")),
    ("an address that is translated to IPv4", _within("64:ff9b::/96", "64:ff9b:1::/48")),
    ("an address that is tunnelled to IPv4", _within("2002::/16", "2001::/32")),
    ("a link-local address", lambda address: address.is_link_local),
    ("a multicast address", lambda address: address.is_multicast),
    ("an address of a provider's own network", _within("100.64.0.0/10")),
    ("a site-local address", _within("fec0::/10")),
    ("a reserved address", lambda address: address.is_reserved),
    ("a private address", lambda address: address.is_private),
    ("an address that is not public", lambda address: not address.is_global),
)


def refusal(address: str) -> str:
    """Why pictures are not fetched from a resolved address; empty: they may be."""
    try:
        read = ipaddress.ip_address(address)
    except ValueError:
        return "an address that cannot be understood"
    return next((what for what, applies in _RULES if applies(read)), "")
