"""A clock that a test sets, in the place of the one that the fleet link reads."""

from __future__ import annotations

from importlib import import_module

import pytest

NODES = "controlplane.gateway.nodes"
READERS = (
    "jobs", "link", "liveness", "resume", "measured.breaker", "measured.retries",
)  # fmt: skip


class Clock:
    """Seconds that pass only when they are told to."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s

    def pass_s(self, seconds: float) -> None:
        """Let time go by."""
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Whatever of the link asks for the time is told this clock's."""
    made = Clock()
    for name in READERS:
        monkeypatch.setattr(import_module(f"{NODES}.{name}"), "monotonic_s", made)
    return made
