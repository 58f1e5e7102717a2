"""manage.py: a wrong setting is one line that names it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("command", ["sluice", "migrate"])
def test_a_wrong_setting_is_told_in_one_line(command: str) -> None:
    ended = subprocess.run(
        [sys.executable, "manage.py", command],
        cwd=ROOT,
        env={**os.environ, "SLUICE_ROLE": "banana"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert "SLUICE_ROLE" in line and "banana" in line
