"""Runs that are done, on disk, so that a long campaign goes on where it was cut off.

The file's name is a digest of the code that makes the figures: changed code starts afresh.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from benchmarks.fleet.fleet import Run

GATEWAY_PARTS = ("nodes", "s4_route", "waiting")
ROOT = Path(__file__).parents[2]
SOURCES = ("benchmarks/fleet", *(f"controlplane/gateway/{part}" for part in GATEWAY_PARTS))
FOLDER = ROOT / "var" / "bench-fleet"


class Journal:
    """Figures by the key of their task; a line that was cut off is run again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.runs: dict[str, Run] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        with path.open("r+") as file:
            whole = 0
            for line in iter(file.readline, ""):
                if not line.endswith("\n"):
                    break
                kept = json.loads(line)
                self.runs[kept["key"]] = Run(**kept["run"])
                whole = file.tell()
            file.truncate(whole)

    def keep(self, key: str, run: Run) -> None:
        """Add one run."""
        with self._path.open("a") as file:
            file.write(json.dumps({"key": key, "run": asdict(run)}) + "\n")
        self.runs[key] = run

    def forget(self) -> None:
        """The campaign is complete."""
        self._path.unlink(missing_ok=True)


def journal_path() -> Path:
    """The journal of the code as it is now."""
    digest = sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return FOLDER / f"{digest.hexdigest()[:16]}.jsonl"
