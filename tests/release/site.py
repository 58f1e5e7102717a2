"""`make docs`: the documentation as a site of plain files, every link in it checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "docs"
# What Sphinx keeps for its next run, and nobody asks a server for.
BESIDE = (".buildinfo", "objects.inv", "_sources")


def build(target: Path) -> Path:
    """Make the site anew in a folder; raises CalledProcessError at the first warning."""
    shutil.rmtree(target, ignore_errors=True)
    with TemporaryDirectory() as kept:
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", kept]
        subprocess.run(
            [*command, "-b", "html", str(SOURCES), str(target)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
        )
    for name in BESIDE:
        kept_beside = target / name
        if kept_beside.is_dir():
            shutil.rmtree(kept_beside)
        else:
            kept_beside.unlink(missing_ok=True)
    return target


if __name__ == "__main__":
    build(Path(sys.argv[1]))
