"""What can be said to vLLM, and what the node says itself."""

from __future__ import annotations

import pytest

from inference.engines.vllm import RESERVED, VllmOptions


@pytest.mark.parametrize("flag", sorted(RESERVED))
def test_what_the_node_sets_cannot_be_overridden(flag: str) -> None:
    for args in ([flag, "1"], [f"{flag}=1"]):
        with pytest.raises(ValueError, match=f"--vllm-args: {flag}"):
            VllmOptions(args=args)


def test_jobs_at_once_are_at_least_one() -> None:
    with pytest.raises(ValueError, match="--credits"):
        VllmOptions(running_max=0)
