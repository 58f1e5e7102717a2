"""A little of `make bench-soak`: each process in turn fails under mixed traffic (P7, P9)."""

from __future__ import annotations

import secrets
from importlib import import_module

import pytest

from benchmarks.recorder import keys_problem
from tests.support.servers import Servers

# Some minutes where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

# However long that takes: each process fails once.
SECONDS, FAULTS_MIN = 20.0, 6
SEED_BITS = 32


def test_whatever_fails_nothing_is_lost_and_nothing_grows(servers: Servers) -> None:
    """P7, P9: killed, frozen or restarted while streams, retries and slow readers go on."""
    # Imported late: it needs models, and pytest reads this file before Django is set up.
    soak = import_module("benchmarks.soak.campaign").soak
    figures = soak(servers, SECONDS, secrets.randbits(SEED_BITS), FAULTS_MIN)
    print(figures)
    assert keys_problem("soak", figures) == ""
    assert figures["clean"], figures
    assert figures["ledger_verified"]
    assert figures["faults"] >= FAULTS_MIN == len(figures["growth"])
