"""Which addresses pictures are fetched from."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.pictures.addresses import refusal


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("0.0.0.0", "unspecified"),
        ("::", "unspecified"),
        ("::ffff:127.0.0.1", "notation of IPv6"),
        ("::ffff:8.8.8.8", "notation of IPv6"),
        ("::7f00:1", "notation of IPv6"),
        ("64:ff9b::7f00:1", "translated"),
        ("64:ff9b:1::a00:1", "translated"),
        ("2002:7f00:1::", "tunnelled"),
        ("2001::7f00:1", "tunnelled"),
        ("10.0.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.0.1", "private"),
        ("0.1.2.3", "private"),
        ("198.18.0.1", "private"),
        ("192.0.2.1", "private"),
        ("fd00::1", "private"),
        ("2001:db8::1", "private"),
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fec0::1", "site-local"),
        ("100.64.0.1", "provider"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("nonsense", "understood"),
    ],
)
def test_what_only_those_inside_can_reach_is_refused(address: str, what: str) -> None:
    assert what in refusal(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700::1111"])
def test_what_everybody_can_reach_is_not(address: str) -> None:
    assert not refusal(address)


@given(st.ip_addresses())
def test_what_is_not_refused_is_public(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if not refusal(str(address)):
        assert address.is_global
        assert not address.is_private
        assert not address.is_multicast
        assert getattr(address, "ipv4_mapped", None) is None
