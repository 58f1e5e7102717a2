"""docs/architecture.md names what is there: every path of it exists, every package is in it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
# In backticks, with a slash inside or behind; not a URL's path, which begins with one.
PATHS = sorted(set(re.findall(r"`([\w.-]+/[\w./-]*)`", PAGE)) - {"var/"})


def test_the_page_names_paths() -> None:
    assert len(PATHS) > 40


@pytest.mark.parametrize("path", PATHS)
def test_every_path_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("package", ["controlplane", "inference", "frontend"])
def test_every_package_is_named(package: str) -> None:
    command = ["git", "ls-files", package]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    folders = {
        "/".join(line.split("/")[:2]) for line in listed.stdout.split() if line.count("/") > 1
    }
    assert {folder for folder in folders if f"`{folder}/" not in PAGE} == set()
