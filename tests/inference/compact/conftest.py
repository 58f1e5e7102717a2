"""What this machine has: a CPU always, a CUDA device where torch sees one.

Tests of CUDA are collected where there is one.
"""

from __future__ import annotations

import pytest

from tests.inference.compact.devices import DEVICES, HAS_TRITON
from tests.suite.summary import left_out

collect_ignore_glob = []
if "cuda" not in DEVICES:
    collect_ignore_glob.append("*test_cuda_*.py")
    left_out("the compact engine on a GPU", "torch sees no CUDA device")
if not HAS_TRITON:
    collect_ignore_glob.append("test_interpreted.py")
    left_out("kernels for GPUs, interpreted", "Triton is not installed (`make test-triton`)")


@pytest.fixture(scope="session", params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """Each device that this machine has."""
    return str(request.param)
