"""What can be said to vLLM, and what the node says itself."""

from __future__ import annotations

from typing import Any

import pytest

from inference.engines.vllm.options import RESERVED, VllmOptions


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_what_the_node_sets_cannot_be_overridden(name: str) -> None:
    with pytest.raises(ValueError, match=rf"--vllm-args: '{name}'"):
        VllmOptions(args={name: 1})


@pytest.mark.parametrize("options", [{"running_max": 0}, {"kv_bytes": 0}, {"threads": 0}], ids=str)
def test_sizes_are_at_least_one(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        VllmOptions(**options)


def test_everything_else_is_vllms_to_judge() -> None:
    args = {"tensor_parallel_size": 2, "quantization": "fp8", "speculative_config": {"method": "x"}}
    assert VllmOptions(args=args).args == args
