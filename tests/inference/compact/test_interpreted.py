"""The GPU kernels in Triton's interpreter, as `make test-triton` runs them.

In a process of their own: whatever finds Triton's folder on its path would use it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.inference.compact.devices import TRITON_PATH

CASES = Path(__file__).with_name("triton_cases.py")


@pytest.mark.timeout(600)
def test_kernels_for_gpus_do_the_same_interpreted() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": TRITON_PATH},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
