"""manage.py: a wrong setting, or role, is one line that names it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("command", ["sluice", "migrate"])
def test_a_wrong_setting_is_told_in_one_line(command: str) -> None:
    line = told(command, role="banana")
    assert "SLUICE_ROLE" in line and "banana" in line


@pytest.mark.parametrize(
    ("command", "role"), [("migrate", "web"), ("bootstrap_db", "gateway"), ("sluice run", "web")]
)
def test_a_role_without_the_secrets_of_a_command_is_told_in_one_line(
    command: str, role: str
) -> None:
    assert "SLUICE_ROLE" in told(command, role=role)


def told(command: str, *, role: str) -> str:
    """The one line of a command that fails."""
    ended = subprocess.run(
        [sys.executable, "manage.py", *command.split()],
        cwd=ROOT,
        env={**os.environ, "SLUICE_ROLE": role},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    return line
