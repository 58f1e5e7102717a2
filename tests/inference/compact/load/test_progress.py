"""What a node says while it reads a large checkpoint."""

from __future__ import annotations

import logging

import pytest

from inference.compact.load.checkpoint import PROGRESS_INTERVAL_S, ReadingProgress
from inference.compact.options import MEBIBYTE


def test_it_speaks_at_bounded_intervals(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    progress = ReadingProgress(100 * MEBIBYTE, lambda: now)
    with caplog.at_level(logging.INFO):
        for _ in range(100):
            now += PROGRESS_INTERVAL_S / 8
            progress.add(MEBIBYTE)
    assert caplog.messages == [f"reading weights {n}/100 MiB" for n in range(8, 97, 8)]


def test_it_is_silent_while_all_goes_quickly(caplog: pytest.LogCaptureFixture) -> None:
    progress = ReadingProgress(100 * MEBIBYTE, lambda: 0.0)
    with caplog.at_level(logging.INFO):
        for _ in range(100):
            progress.add(MEBIBYTE)
    assert not caplog.messages
