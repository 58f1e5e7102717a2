"""The classifier's own process: one per host, really scoring, back after it was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.bridge.safety import client as module
from controlplane.bridge.safety.client import SafetyClient
from tests.support.classifier import FINE, FOUL, START_S_MAX, classifier, warm


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[SafetyClient]:
    """It waits for a score as long as a busy machine takes: what is asked here is the score."""
    async with classifier(tmp_path) as made:
        made.score_s = START_S_MAX
        yield made


async def test_gateways_of_a_host_share_one_process(
    client: SafetyClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A second process leaves.
    command = [sys.executable, "-m", "controlplane.bridge.safety.process"]
    second = await asyncio.create_subprocess_exec(*command, str(tmp_path / "safety.sock"))
    async with asyncio.timeout(START_S_MAX):
        assert await second.wait() == 0
    assert await client.score(FOUL) > 0.9
    # Another gateway has the same scores.
    other = SafetyClient(tmp_path / "safety.sock", START_S_MAX)
    assert await other.score(FOUL) == await client.score(FOUL)
    await other.close()
    # One that runs is not started again.
    monkeypatch.setattr(module, "START_AGAIN_S", 0.0)
    first = client._process
    client.start_process()
    assert client._process is first


async def test_killed_process_is_started_again(
    client: SafetyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "START_AGAIN_S", 0.0)
    first = client._process
    assert isinstance(first, subprocess.Popen)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    with pytest.raises(TimeoutError):
        await client.score(FINE)
    monkeypatch.setattr(module, "START_AGAIN_S", 3600.0)
    assert await warm(client) < 0.5
    assert client._process is not first
