"""A minute of `make bench-soak`: each process in turn fails under mixed traffic (P7, P9)."""

from __future__ import annotations

import secrets
from importlib import import_module

from benchmarks.recorder import keys_problem
from tests.support.servers import Servers

SECONDS = 60.0
SEED_BITS = 32
# Each process once, where the machine is as slow as it may be.
FAULTS_MIN = 4


def test_whatever_fails_nothing_is_lost_and_nothing_grows(servers: Servers) -> None:
    """P7, P9: killed, frozen or restarted while streams, retries and slow readers go on."""
    # Imported late: it needs models, and pytest reads this file before Django is set up.
    soak = import_module("benchmarks.soak.campaign").soak
    figures = soak(servers, SECONDS, secrets.randbits(SEED_BITS))
    print(figures)
    assert keys_problem("soak", figures) == ""
    assert figures["clean"], figures
    assert figures["ledger_verified"]
    assert figures["faults"] >= FAULTS_MIN
