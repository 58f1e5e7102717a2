"""A little of `make bench-soak`: each process in turn fails under mixed traffic (P7, P9)."""

from __future__ import annotations

import secrets

import pytest

from benchmarks.recorder import keys_problem
from benchmarks.soak import campaign, targets
from tests.support.servers import Servers

# Some minutes where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

# However long that takes: each process fails once.
SECONDS, FAULTS_MIN = 0.0, 6
SEED_BITS = 32
# Longer than until gateways know that a node stands still.
FROZEN_S = 5.0
HOLDS = {"SLUICE_REQUEST_DEADLINE_S": "20", "SLUICE_HOLD_GRACE_S": "3"}


def test_whatever_fails_nothing_is_lost_and_nothing_grows(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P7, P9: killed, frozen or restarted while streams, retries and slow readers go on."""
    monkeypatch.setattr(campaign, "WARM_S", 3.0)
    monkeypatch.setattr(campaign, "QUIET_S", 1.0)
    monkeypatch.setattr(campaign, "SHORT_HOLDS", HOLDS)
    monkeypatch.setattr(targets, "FROZEN_S", FROZEN_S)
    figures = campaign.soak(servers, SECONDS, secrets.randbits(SEED_BITS), FAULTS_MIN)
    print(figures)
    assert keys_problem("soak", figures) == ""
    assert figures["clean"], figures
    assert figures["ledger_verified"]
    assert figures["faults"] >= FAULTS_MIN == len(figures["growth"])
