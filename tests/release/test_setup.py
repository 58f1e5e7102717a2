"""`make torch`: which build is asked for where, what is said before, and what a full disk gets."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CPU, OTHER, CUDA = (f"requirements/{name}.txt" for name in ("torch-cpu", "torch", "torch-cuda"))
# Stands for pip: notes what it is asked for, and has what the test says.
PIP = """#!/bin/sh
echo "$*" >> {log}
case "$*" in {refused}) exit 1 ;; esac
"""
NEVER = "-never-"


def asked(tmp_path: Path, *given: str, refused: str = NEVER) -> tuple[list[str], str, int]:
    """Calls of Python, what was said, and the status, with these variables of make."""
    log, python = tmp_path / "log", tmp_path / "python"
    python.write_text(PIP.format(log=log, refused=refused))
    python.chmod(0o755)
    done = subprocess.run(
        ["make", "-s", "torch", f"PYTHON_OF={python}", *given],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    calls = log.read_text().splitlines() if log.exists() else []
    return calls, done.stdout, done.returncode


def locks(calls: list[str]) -> list[str]:
    return [call.rpartition("-r ")[2] for call in calls if " -r " in call]


def test_without_a_gpu_it_is_the_build_for_cpus(tmp_path: Path) -> None:
    calls, said, status = asked(tmp_path, "HAS_GPU=false", refused="*torch.txt|-c*")
    assert (locks(calls), status) == ([CPU], 0)
    assert "0.2 GB to download" in said and "2.8 GB" not in said


def test_it_is_looked_for_where_it_is_published(tmp_path: Path) -> None:
    index = "https://torch.example.org/cpu"
    calls, _, status = asked(
        tmp_path, "HAS_GPU=false", f"TORCH_INDEX={index}", refused='*"retries=1 -r"*|-c*'
    )
    assert (locks(calls), status) == ([CPU, CPU], 0)
    assert f"--index-url={index}" in calls[1]


def test_the_large_one_is_announced(tmp_path: Path) -> None:
    calls, said, status = asked(tmp_path, "HAS_GPU=false", refused="*torch-cpu.txt")
    assert (locks(calls), status) == ([CPU, CPU, OTHER, CUDA], 0)
    assert "2.8 GB to download" in said


def test_beside_a_gpu_it_is_the_one_with_cuda(tmp_path: Path) -> None:
    calls, said, _ = asked(tmp_path, "HAS_GPU=true")
    assert locks(calls) == [OTHER, CUDA] and "2.8 GB to download" in said


@pytest.mark.parametrize(
    ("gpu", "bound"), [("false", "TORCH_CPU_KIB_MIN"), ("true", "TORCH_KIB_MIN")]
)
def test_nothing_is_downloaded_onto_a_full_disk(tmp_path: Path, gpu: str, bound: str) -> None:
    calls, said, status = asked(tmp_path, f"HAS_GPU={gpu}", f"{bound}=999999999999")
    assert calls == [] and "MB of disk space" in said and status != 0
