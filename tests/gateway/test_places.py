"""Where a client is: what a trusted proxy says, or the longest network that holds its address."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.call import Call
from controlplane.gateway.places import Places

PROXY = "192.0.2.1"
NETWORKS = [
    (ip_network(network), region)
    for network, region in {
        "10.0.0.0/8": "eu",
        "10.1.0.0/16": "us",
        "10.1.2.3/32": "lab",
        "2001:db8::/32": "asia",
        "2001:db8:1::/48": "eu",
    }.items()
]
PLACES = Places(header="x-where", networks=NETWORKS, trusted_proxies=(PROXY, "192.0.2.0/29"))


def region(peer: str, **headers: str) -> str | None:
    """Of a client at `peer`, or behind it."""
    names = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return PLACES.region_of(Call(names, peer))


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("10.9.9.9", "eu"),
        ("10.1.9.9", "us"),
        ("10.1.2.3", "lab"),
        ("::ffff:10.1.2.3", "lab"),
        ("2001:db8:1::7", "eu"),
        ("2001:db8:2::7", "asia"),
        ("11.0.0.1", None),
        ("", None),
        ("not an address", None),
    ],
)
def test_the_longest_prefix_wins(peer: str, expected: str | None) -> None:
    assert region(peer) == expected


@given(
    base=st.integers(0, 2**32 - 1),
    flipped=st.integers(0, 2**32 - 1),
    lengths=st.sets(st.integers(0, 32), min_size=1),
)
def test_it_finds_what_the_standard_library_finds(
    base: int, flipped: int, lengths: set[int]
) -> None:
    # One bit apart, so that some networks hold the address and some do not.
    address = ip_address(base ^ (flipped & -flipped))
    networks = [(ip_network((base, bits), strict=False), str(bits)) for bits in lengths]
    holding = [network.prefixlen for network, _ in networks if address in network]
    found = Places(networks=networks).region_of(Call([], str(address)))
    assert found == (str(max(holding)) if holding else None)


def test_headers_are_believed_from_trusted_proxies_only() -> None:
    assert region(PROXY, x_where=" us ") == "us"
    assert region("10.9.9.9", x_where="us") == "eu"
    assert region("10.9.9.9", x_forwarded_for="10.1.0.1") == "eu"


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        ("10.1.0.1", "us"),
        ("2001:db8:2::7, 10.1.0.1", "us"),
        ("10.1.0.1, 192.0.2.2", "us"),
        ("garbage", None),
        ("", None),
        (", ,", None),
    ],
)
def test_the_last_hop_that_is_no_proxy_is_the_client(forwarded: str, expected: str | None) -> None:
    assert region(PROXY, x_forwarded_for=forwarded) == expected


def test_nothing_configured_knows_nothing() -> None:
    assert Places().region_of(Call([(b"", b"x")], "10.1.2.3")) is None
