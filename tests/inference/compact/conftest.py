"""What this machine has: a CPU always, a CUDA device where torch sees one.

Tests of native code are collected on CPUs that it is written for, those of CUDA where there is one.
"""

from __future__ import annotations

import pytest

from inference.compact.native.build import cpu_flags
from inference.compact.native.probe import NEEDED_FLAGS
from tests.inference.compact.devices import DEVICES

collect_ignore_glob = [
    *([] if cpu_flags().issuperset(NEEDED_FLAGS) else ["test_native_*.py"]),
    *([] if "cuda" in DEVICES else ["test_cuda_*.py"]),
]


@pytest.fixture(scope="session", params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """Each device that this machine has."""
    return str(request.param)
