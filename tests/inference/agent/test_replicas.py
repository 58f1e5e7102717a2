"""The command of a node: what the deployment was given reaches its engine."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from inference.agent import replicas
from inference.agent.models import HostModels
from inference.agent.replicas import Replica, node_argv
from inference.contract.hosts import ModelSource, WantedReplica


def _wanted(engine: str, **values: object) -> WantedReplica:
    source = ModelSource("folder", "/models/m")
    told = {"id": "replica_" + "0" * 32, "node": "d-1", "pool": "p", "model": "m"}
    return WantedReplica(**told, engine=engine, source=source, **values)  # type: ignore[arg-type]


def _argv(wanted: WantedReplica) -> str:
    return " ".join(node_argv(wanted, Path("/models/m"), ["wss://gw/fleet"]))


def test_vllm_gets_the_window_and_the_share_of_memory_that_were_reckoned() -> None:
    given = _wanted("vllm", gpu=1, window=8_192, share=0.30001, arguments={"dtype": "bfloat16"})
    assert _argv(given).endswith(
        "--vllm-args --max-model-len 8192 --gpu-memory-utilization 0.301 --dtype bfloat16"
    )


def test_our_own_engine_gets_the_bytes_of_its_cache() -> None:
    told = _argv(_wanted("compact", kv=(3 << 20) + 1, arguments={"threads": "2"}))
    assert "--device cpu --kv-mib 4 --threads 2" in told
    assert "--device cuda" in _argv(_wanted("compact", gpu=0))


def test_a_full_disk_puts_a_node_off_and_does_not_end_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def claim(_: Path) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(replicas, "claim", claim)
    replica = Replica(_wanted("echo", credential="c"), HostModels(tmp_path, []), tmp_path, tmp_path)
    monkeypatch.setattr(replica, "_folder", tmp_path)
    replica.step([], None)
    assert (replica.state.phase, replica.state.pid) == ("waiting", None)
    assert "No space left" in replica.state.message
