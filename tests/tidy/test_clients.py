"""docs/clients.md shows what the tests of clients run, and all of it."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOLD = (ROOT / "docs" / "clients.md").read_text()
CLIENTS = ROOT / "tests" / "clients"
# Each has its own region in a comment: from a line that says docs to one that says end.
REGION = re.compile(r"^ *(?:#|//) docs\n(.*?)^ *(?:#|//) end\n", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| \[(.+?)\]\(#([a-z-]+)\) \| (.+?) \|", re.MULTILINE)
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def shown() -> dict[str, str]:
    """By file, what it wants documentation to show."""
    files = [*CLIENTS.glob("drivers/*"), *CLIENTS.glob("node/*.mjs")]
    regions = {path.name: REGION.findall(path.read_text()) for path in files if path.is_file()}
    return {
        name: "\n\n".join(textwrap.dedent(each).strip() for each in found) + "\n"
        for name, found in regions.items()
        if found
    }


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^a-z -]", "", heading.lower()).replace(" ", "-")


def test_each_snippet_is_what_a_driver_runs() -> None:
    snippets = re.findall(r"^```\w+\n(.*?)^```$", TOLD, re.MULTILINE | re.DOTALL)
    # The formatter has two blank lines around a class, but one in a function.
    snippets = [re.sub(r"\n{3,}", "\n\n", each) for each in snippets]
    assert sorted(snippets) == sorted(shown().values())


def test_each_client_has_a_row_and_a_section() -> None:
    sections = SECTION.findall(TOLD)
    assert [name for name, _, _ in ROW.findall(TOLD)] == sections
    assert [anchor(name) for name in sections] == [link for _, link, _ in ROW.findall(TOLD)]
    assert len(sections) == len(shown())


def test_versions_are_those_that_are_installed() -> None:
    locks = "\n".join(path.read_text() for path in (ROOT / "requirements").glob("*.txt"))
    pinned = set(re.findall(r"^\S+?==([0-9.]+)", locks, re.MULTILINE))
    for folder in ("node", "agents"):
        packages = json.loads((CLIENTS / folder / "package-lock.json").read_text())["packages"]
        pinned |= {each["version"] for each in packages.values() if "version" in each}
    told = {
        version
        for _, _, cell in ROW.findall(TOLD)
        for version in re.findall(r"\d+\.\d+\.\d+", cell)
    }
    assert told and told <= pinned
