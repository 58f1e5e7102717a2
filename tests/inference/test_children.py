"""When a child that has ended is started again, and what it inherits."""

from __future__ import annotations

import pytest

from inference.children import (
    BACKOFF_S_MAX,
    BACKOFF_S_MIN,
    HEALTHY_S,
    Restarts,
    environment_without,
)


def test_pauses_double_up_to_their_bound_until_a_child_has_recovered() -> None:
    restarts = Restarts()
    pauses = []
    for _ in range(9):
        restarts.put_off(100.0)
        pauses.append(restarts.retry_at - 100.0)
    assert pauses[:3] == [BACKOFF_S_MIN, 2 * BACKOFF_S_MIN, 4 * BACKOFF_S_MIN]
    assert pauses[-1] == BACKOFF_S_MAX
    restarts.started = 100.0
    assert not restarts.recovered(100.0 + HEALTHY_S) and restarts.pause_s == BACKOFF_S_MAX
    assert restarts.recovered(101.0 + HEALTHY_S) and restarts.pause_s == BACKOFF_S_MIN


def test_hidden_variables_are_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLUICE_SECRET", "HF_TOKEN", "KEPT"):
        monkeypatch.setenv(name, "x")
    made = environment_without("SLUICE_", "HF_TOKEN")
    assert "KEPT" in made and not {"SLUICE_SECRET", "HF_TOKEN"} & made.keys()
