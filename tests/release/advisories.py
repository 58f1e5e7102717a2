"""Known faults of the packages that we pin, kept in the tree so that a check needs no network.

`python -m tests.release.advisories` says what is known of them. With the folder of a clone of
github.com/pypa/advisory-database it first keeps what that says of each package in requirements/.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "requirements"
KEPT = LOCKS / "advisories.json"
PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)
FOLDER = "vulns"


class Known(NamedTuple):
    """A pinned version that an advisory names; `fixed` is the first that is mended, or none."""

    package: str
    version: str
    lock: str
    advisory: str
    fixed: str


def pins(text: str) -> Iterator[tuple[str, str]]:
    """Packages and versions of a lock."""
    for name, version in PIN.findall(text):
        yield canonicalize_name(name), version


@cache
def pinned() -> dict[str, set[str]]:
    """Of each lock's text, what it pins, by package."""
    found: dict[str, set[str]] = {}
    for path in LOCKS.glob("*.txt"):
        for name, _ in pins(path.read_text()):
            found.setdefault(name, set()).add(path.name)
    return found


def known(locks: dict[str, str], kept: dict[str, Any]) -> list[Known]:
    """What advisories say of versions in locks, whose texts are given by their names."""
    return [
        Known(name, version, lock, advisory["id"], fixed)
        for lock, text in locks.items()
        for name, version in pins(text)
        for advisory in kept["packages"].get(name, [])
        for first, fixed in advisory["ranges"]
        if Version(first) <= Version(version) and (not fixed or Version(version) < Version(fixed))
    ]


def ranges(affected: dict[str, Any]) -> list[list[str]]:
    """Pairs of the first affected version and the first mended one, or an empty text."""
    found: list[list[str]] = []
    for one in affected.get("ranges", []):
        if one["type"] != "ECOSYSTEM":
            continue
        for event in one["events"]:
            ((kind, version),) = event.items()
            if kind == "introduced":
                found.append([str(version), ""])
            elif kind == "fixed":
                found[-1][1] = str(version)
    return found


def read(clone: Path) -> dict[str, Any]:
    """What is kept of a clone: its date, and advisories that were not withdrawn, by package."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(clone), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    packages: dict[str, list[dict[str, Any]]] = {}
    for path in git("ls-tree", "-r", "--name-only", "HEAD", FOLDER).splitlines():
        name = canonicalize_name(path.split("/")[1])
        if name not in pinned():
            continue
        told = yaml.safe_load(git("show", f"HEAD:{path}"))
        if "withdrawn" in told:
            continue
        found = [pair for each in told["affected"] for pair in ranges(each)]
        packages.setdefault(name, []).append({"id": told["id"], "ranges": found})
    date = git("log", "-1", "--format=%cs").strip()
    return {"of": "github.com/pypa/advisory-database", "date": date, "packages": packages}


def keep(made: dict[str, Any]) -> None:
    """Write it, a package a line."""
    lines = (f'  "{name}": {json.dumps(found)}' for name, found in sorted(made["packages"].items()))
    head = f'{{"of": "{made["of"]}", "date": "{made["date"]}", "packages": {{'
    KEPT.write_text(head + "\n" + ",\n".join(lines) + "\n}}\n")


def main(words: list[str]) -> int:
    """Keep what a clone says, if one is named; then say what is known; fails where something is."""
    if words:
        keep(read(Path(words[0])))
    kept = json.loads(KEPT.read_text())
    found = known({path.name: path.read_text() for path in LOCKS.glob("*.txt")}, kept)
    for one in found:
        print(*one)
    print(f"{len(found)} known of what is pinned, by {kept['of']} of {kept['date']}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
