"""Which addresses are outside our own network."""

from __future__ import annotations

import pytest

from controlplane.core.outbound import NotReached, public_address


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "169.254.169.254", "224.0.0.1", "::1", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe",
     "64:ff9b::a00:1", "2002:7f00:1::", "::127.0.0.1", "fec0::1", "fd00::1"],
)  # fmt: skip
def test_an_address_inside_a_network_is_refused_in_every_spelling(address: str) -> None:
    with pytest.raises(NotReached):
        public_address(address, 443, private=False)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:4700::1111", "64:ff9b::5db8:d822"])
def test_an_address_of_the_internet_is_taken(address: str) -> None:
    assert public_address(address, 443, private=False)
