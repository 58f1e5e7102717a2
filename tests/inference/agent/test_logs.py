"""Logs of nodes are bounded: each by bytes, those of replicas that are gone by number."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inference.agent import logs


def test_a_log_that_is_too_long_moves_while_its_node_writes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOG_BYTES_MAX", 10)
    log = tmp_path / "r.log"
    with logs.log_open(log) as out:
        for words in (b"first line\n", b"second line\n", b"third\n"):
            logs.log_cut(log)
            out.write(words)
            out.flush()
    assert log.read_bytes() == b"third\n" and logs.log_tail(log) == "third"
    assert (tmp_path / "r.log.1").read_bytes() == b"second line\n"
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {logs.LOG_MODE}


def test_the_oldest_logs_of_replicas_that_are_gone_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "OLD_LOGS_MAX", 1)
    for age, name in enumerate(("new", "middle", "old", "used")):
        for suffix in (".log", ".log.1"):
            (tmp_path / f"{name}{suffix}").touch()
            os.utime(tmp_path / f"{name}{suffix}", (1_000 - age, 1_000 - age))
    logs.logs_prune(tmp_path, ["used"])
    assert {path.name.split(".")[0] for path in tmp_path.iterdir()} == {"new", "used"}
