"""One release: every command that tells a version tells the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from inference.contract.version import VERSION

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "command",
    [
        ["manage.py", "sluice", "--version"],
        ["-m", "controlplane", "--version"],
        ["-m", "controlplane", "node", "--version"],
    ],
)
def test_a_command_tells_the_release(command: list[str]) -> None:
    told = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert told.stdout == f"sluice {VERSION}\n"
