"""Nodes of an earlier agent: waited for while they hold their lock, and killed past the bound."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.agent.earlier import EarlierNode, claim, note
from tests.support.waiting import wait_for

NAME = "replica_" + "0" * 32


@pytest.fixture
def node(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that was started with the lock, as a node is."""
    lock = claim(tmp_path / NAME)
    assert lock is not None
    process = subprocess.Popen(["sleep", "1000"], pass_fds=[lock], start_new_session=True)
    note(lock, process.pid)
    os.close(lock)
    yield process
    process.kill()
    process.wait()


def test_it_drains_for_as_long_as_it_lives(node: subprocess.Popen[bytes], tmp_path: Path) -> None:
    earlier = EarlierNode(tmp_path / NAME, wait_s=1_000)
    assert claim(tmp_path / NAME) is None
    assert earlier.step() and earlier.step() and node.poll() is None
    assert (earlier.state.id, earlier.state.phase) == (NAME, "draining")
    node.kill()
    wait_for(lambda: not earlier.step(), "the end of the node")
    assert not (tmp_path / NAME).exists()


def test_it_is_killed_past_its_bound(node: subprocess.Popen[bytes], tmp_path: Path) -> None:
    earlier = EarlierNode(tmp_path / NAME, wait_s=0)
    wait_for(lambda: not earlier.step(), "the end of the node")
    assert node.wait() < 0


def test_a_file_without_a_process_is_of_nobody(tmp_path: Path) -> None:
    (tmp_path / NAME).touch()
    assert not EarlierNode(tmp_path / NAME, wait_s=0).step()
    assert list(tmp_path.iterdir()) == []
