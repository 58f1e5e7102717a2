"""The command of a node: what the deployment was given reaches its engine."""

from __future__ import annotations

from pathlib import Path

from inference.agent.replicas import node_argv
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
