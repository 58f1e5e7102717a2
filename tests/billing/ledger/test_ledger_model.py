"""The ledger agrees with a plain model in any history; `LEDGER_STEPS=10000` looks further."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.billing.ledger.machine import LedgerMachine, connected_machine

STEPS_PER_EXAMPLE = 50
STEPS = int(os.environ.get("LEDGER_STEPS", "500"))


@pytest.fixture
def connected(database: str) -> Iterator[None]:
    with connected_machine():
        yield


def test_any_history_agrees_with_the_model(connected: None) -> None:
    run_state_machine_as_test(
        LedgerMachine,
        settings=settings(
            max_examples=max(1, STEPS // STEPS_PER_EXAMPLE),
            stateful_step_count=STEPS_PER_EXAMPLE,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
