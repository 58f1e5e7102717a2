"""Networks of keys: who is within one, and which network is within another."""

from __future__ import annotations

from ipaddress import IPv4Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kernel.keys.scopes import (
    caller_within,
    far_address,
    network_covered,
    parse_network,
)

NETWORKS = ("10.1.0.0/16", "192.0.2.7/32", "2001:db8::/32")


@pytest.mark.parametrize(
    ("caller", "inside"),
    [
        ("10.1.255.255", True),
        ("::ffff:10.1.2.3", True),
        ("192.0.2.7", True),
        ("2001:db8:ffff::1", True),
        ("10.2.0.0", False),
        ("192.0.2.8", False),
        ("::1", False),
        ("", False),
        ("10.1.0.0/16", False),
        ("localhost", False),
    ],
)
def test_a_caller_is_in_one_of_them_or_not(caller: str, inside: bool) -> None:
    assert caller_within(NETWORKS, caller) is inside


@pytest.mark.parametrize("wrong", ["10.0.0.1/8", "10.0.0/8", "nowhere", "10.0.0.0/33", ""])
def test_what_is_no_network_is_said(wrong: str) -> None:
    with pytest.raises(ValueError):
        parse_network(wrong)


networks = st.builds(
    lambda base, bits: str(ip_network((base, bits), strict=False)),
    st.sampled_from([0, 10 << 24, (10 << 24) + (1 << 16), 2**31]),
    st.integers(0, 32),
)


@given(inner=networks, outer=st.lists(networks, max_size=3))
def test_what_is_covered_lets_nobody_else_in(inner: str, outer: list[str]) -> None:
    first, last = ip_network(inner)[0], ip_network(inner)[-1]
    if network_covered(inner, outer):
        assert all(caller_within(tuple(outer), str(caller)) for caller in (first, last))
    else:
        assert not any(IPv4Network(inner).subnet_of(IPv4Network(one)) for one in outer)


def test_versions_are_never_within_each_other() -> None:
    assert not network_covered("10.0.0.0/8", ["::/0"])
    assert not network_covered("2001:db8::/32", ["0.0.0.0/0"])


PROXIES = ("192.0.2.1/32", "10.0.0.0/8", "2001:db8:1::/48")


@pytest.mark.parametrize(
    ("peer", "forwarded", "far"),
    [
        ("203.0.113.5", "198.51.100.7", "203.0.113.5"),
        ("192.0.2.1", "198.51.100.7", "198.51.100.7"),
        ("10.1.2.3", "1.1.1.1, 198.51.100.7, 10.9.9.9", "198.51.100.7"),
        ("::ffff:10.1.2.3", "198.51.100.7", "198.51.100.7"),
        ("2001:db8:1::9", "2001:db8:2::7, 2001:db8:1::1", "2001:db8:2::7"),
        ("10.1.2.3", "198.51.100.7:4711", "198.51.100.7"),
        ("10.1.2.3", "[2001:db8:2::7]:4711, 10.0.0.1:80", "2001:db8:2::7"),
        ("10.1.2.3", "", "10.1.2.3"),
        ("10.1.2.3", "10.0.0.1, ,", "10.1.2.3"),
        ("10.1.2.3", "nonsense", "nonsense"),
    ],
)
def test_the_last_address_that_is_no_proxy_asks(peer: str, forwarded: str, far: str) -> None:
    assert far_address(peer, forwarded, PROXIES) == far
