"""I11: what a machine does with a model is told in seconds, and a slow path with its reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.shipped import SHIPPED

CHECK_S_MAX = 120.0
ENOUGH = ("context_window", "kernels", "slow", "decode", "prefill", "memory")


def _checked(**environment: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "inference", "--check", "--model", str(SHIPPED), "--device", "cpu"],
        env={**os.environ, **environment}, cwd=SHIPPED.parents[2], timeout=CHECK_S_MAX,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert told.keys() >= set(ENOUGH)
    return told


def _rate(text: str) -> float:
    return float(text.split(" ")[0].replace(",", ""))


def test_without_a_compiler_the_check_says_that_it_is_slow_and_why(tmp_path: Path) -> None:
    told = _checked(PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    assert told["kernels"] == "torch"
    assert "no C compiler found; install gcc or clang" in told["slow"]
    assert all(_rate(told[name]) > 0 for name in ("decode", "prefill", "memory"))


def test_otherwise_it_names_the_kernels_and_what_they_reach() -> None:
    told = _checked()
    native = told["kernels"].startswith("native ")
    assert (told["slow"] == "no") is native
    assert all(_rate(told[name]) > 0 for name in ("decode", "prefill", "memory"))
