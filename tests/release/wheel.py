"""`make wheel`: the product as one wheel, from the tracked files, the same bytes each time.

The documentation's site is in it, which is built for that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.release import site

ROOT = Path(__file__).parents[2]
PACKAGES = ("controlplane", "frontend", "inference")
BESIDE = ("pyproject.toml", "README.md", "LICENSE", "requirements")
RUNBOOKS = "docs/runbooks"
# Where the settings look for them in an installed wheel.
RUNBOOKS_PACKED = "controlplane/runbooks"
DOCUMENTATION_PACKED = "controlplane/documentation"
FILE_MODE = 0o644
# The times in a wheel are of no use to anybody: those of a zip file's first day.
EPOCH_S = "315532800"
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


def packed() -> dict[str, Path]:
    """Names in the wheel of all files of the packages, and where they are here."""
    names = {name: ROOT / name for name in _tracked(*PACKAGES)}
    runbooks = {name: ROOT / name for name in _tracked(RUNBOOKS)}
    return names | {
        name.replace(RUNBOOKS, RUNBOOKS_PACKED, 1): path for name, path in runbooks.items()
    }


def build(target: Path) -> Path:
    """Make the wheel in a folder; returns its path."""
    target.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        for name, path in (packed() | {name: ROOT / name for name in _tracked(*BESIDE)}).items():
            copy = Path(folder, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            copy.chmod(FILE_MODE)
        site.build(Path(folder, DOCUMENTATION_PACKED))
        subprocess.run(
            [sys.executable, "-c", BUILD, str(target.resolve())],
            cwd=folder,
            env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH_S},
            check=True,
            stdout=subprocess.DEVNULL,
            umask=0o022,
        )
    return next(target.glob("sluice-*.whl"))


def _tracked(*paths: str) -> list[str]:
    """Tracked files, or about to be, that are there."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *paths]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


if __name__ == "__main__":
    sys.stdout.write(f"{build(Path(sys.argv[1]))}\n")
