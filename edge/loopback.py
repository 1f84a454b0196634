"""What the machine itself is called. Pure."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host, by name or by address without brackets, is this machine."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
