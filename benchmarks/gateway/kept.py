"""The kept results of `bench-gateway` that a new measurement is held against."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.recorder import FOLDER, ROOT, Result, commit_exists

# What a request runs through; where none of it has changed, it costs what it did.
HOT_PATH = (
    "controlplane/gateway",
    "controlplane/bridge",
    "controlplane/kernel",
    "controlplane/billing/sql",
    "inference/contract",
    "inference/text",
)
GROWTH_MAX = 1.10


class Cpu(NamedTuple):
    """A kind of CPU: figures of different kinds are not compared."""

    name: str
    flags: tuple[str, ...]


class Grown(NamedTuple):
    """A row that costs more than it did, beside the control."""

    name: str
    before: float
    now: float

    def __str__(self) -> str:
        return f"{self.name} grew from {self.before:.2f} to {self.now:.2f} x the control"


def last_kept(cpu: Cpu, folder: Path = FOLDER) -> Result | None:
    """The newest file of this kind of CPU whose commit is in this history.

    One whose sampler had no pass of its own has its cost in all others.
    """
    files = folder.glob("gateway-*.json")
    found = [msgspec.json.decode(path.read_bytes(), type=Result) for path in files]
    same = [each for each in found if Cpu(each.machine.cpu, tuple(each.machine.flags)) == cpu]
    known = [each for each in same if "sampled" in each.passes and commit_exists(each.commit)]
    return max(known, key=lambda each: each.began, default=None)


def changed_since(commit: str) -> list[str]:
    """Files of the hot path that differ in the working tree from what a commit has."""
    commands = (
        ("git", "diff", "--name-only", commit, "--", *HOT_PATH),
        ("git", "ls-files", "--others", "--exclude-standard", "--", *HOT_PATH),
    )
    told = [
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for command in commands
    ]
    return sorted({line for text in told for line in text.splitlines()})


def reason_to_skip(kept: Result | None, changed: Sequence[str]) -> str:
    """Why nothing has to be measured before the tests; empty where it has to."""
    if kept is None:
        return "no results of bench-gateway are kept for this kind of CPU"
    if not changed:
        return f"nothing of the hot path has changed since {kept.commit[:10]}, which was measured"
    return ""


def grown(before: Mapping[str, float], now: Mapping[str, float]) -> list[Grown]:
    """Rows of both that are more than `GROWTH_MAX` times what they were."""
    pairs = [Grown(name, before[name], now[name]) for name in before if name in now]
    return [pair for pair in pairs if pair.now > pair.before * GROWTH_MAX]
