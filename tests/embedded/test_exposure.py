"""What a start beyond this machine opens, and that its pages answer to the names it is told by."""

from __future__ import annotations

import pytest

from controlplane.embedded import exposure

KNOWN = ["localhost"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "localhost", "::1"])
def test_this_machine_alone_is_no_exposure(host: str) -> None:
    assert exposure.told(host, [8000]) == ""
    assert exposure.names_variable(host, KNOWN) == {}
    assert exposure.dialled(host) == host


def test_one_address_is_told_with_every_port() -> None:
    text = exposure.told("192.0.2.7", [8000, 8001])
    assert "http://192.0.2.7:8000" in text and "http://192.0.2.7:8001" in text
    names = exposure.names_variable("192.0.2.7", KNOWN)[exposure.HOSTS_VARIABLE].split(",")
    assert names[:2] == ["localhost", "192.0.2.7"]


def test_all_addresses_are_those_of_this_machine_and_dialled_on_it() -> None:
    assert exposure.dialled("0.0.0.0") == "127.0.0.1"
    assert "127.0.0.1" not in exposure.outside("0.0.0.0")
    assert "without encryption" in exposure.told("0.0.0.0", [8000])


def test_names_that_the_operator_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(exposure.HOSTS_VARIABLE, "sluice.example.org")
    assert exposure.names_variable("192.0.2.7", KNOWN) == {}
