"""docs/mission.md names what is there: every requirement has a row, each row's pages, endpoints,
commands, documents and tests exist, and one of its tests starts processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from django.core.management import get_commands
from django.urls import URLPattern, URLResolver, get_resolver

from controlplane.__main__ import COMMANDS, PROGRAMS
from controlplane.gateway.openai.description import OPERATIONS

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "requirements"
# Where tests of whole products are, whose functions name the requirement: `test_i3_...`.
WHOLE = (ROOT / "tests" / "product", ROOT / "tests" / "faults")
STARTS = re.compile(
    r"\b(?:running_product|installation|subprocess\.(?:run|Popen))\(|\bsluice_run import\b"
)
# How many each part of the requirements has.
PARTS = {"P": 15, "I": 12, "C": 13, "S": 10}
NUMBERS = [f"{part}{number + 1}" for part, count in PARTS.items() for number in range(count)]
ROW = re.compile(r"^\| ([A-Z][0-9]+) \| (.+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
TESTED = re.compile(r"test_([a-z][0-9]+)_\w+\.py")
PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")
NOTHING = "–"


def rows() -> dict[str, tuple[str, ...]]:
    page = (ROOT / "docs" / "mission.md").read_text()
    return {number: tuple(cells) for number, *cells in ROW.findall(page)}


def quoted(cell: str) -> list[str]:
    """What stands in a cell in backticks: all of it but commas, or the dash."""
    found = re.findall(r"`([^`]+)`", cell)
    assert cell == NOTHING or cell == ", ".join(f"`{each}`" for each in found), cell
    return found


@cache
def paths() -> set[str]:
    """Of pages and of the API, with parameters by name alone."""
    found = _patterns(get_resolver())
    return {"/" + PARAMETER.sub(r"{\1}", each) for each in found}


def _patterns(of: URLResolver, before: str = "") -> Iterator[str]:
    for each in of.url_patterns:
        path = f"{before}{each.pattern}"
        if isinstance(each, URLPattern):
            yield path
        else:
            yield from _patterns(each, path)


def exists(shown: str) -> bool:
    """Whether it is an operation of the gateway, a path of the pages, or a command."""
    first, _, rest = shown.partition(" ")
    if first == "sluice":
        groups = {name.partition(" ")[0] for name in COMMANDS}
        whole = rest in {*COMMANDS, *PROGRAMS, *get_commands()}
        return whole or (" " not in rest and rest in groups)
    if rest:
        return (rest, first.lower()) in {(path, method) for path, method in OPERATIONS}
    return shown in paths()


def test_every_requirement_has_one_row_and_no_other() -> None:
    assert list(rows()) == NUMBERS


@pytest.mark.parametrize("number", NUMBERS)
def test_what_a_row_names_is_there(number: str) -> None:
    told, pages, ends, tests = rows()[number]
    shown, held = quoted(pages) + quoted(ends), list(TESTS.glob(f"test_{number.lower()}_*.py"))
    assert bool(quoted(tests)) == bool(held), f"name its tests, or write {NOTHING}"
    if not held:
        return
    assert shown and all(map(exists, shown)), [each for each in shown if not exists(each)]
    assert all(page in paths() for page in quoted(pages))
    for document in re.findall(r"\]\(([^)#]+)", told):
        assert (ROOT / "docs" / document).is_file(), document
    assert quoted(tests) == [f"test_{number.lower()}_*"]


@cache
def of_whole_products() -> str:
    """The source of all tests of products in processes."""
    return "\n".join(path.read_text() for folder in WHOLE for path in folder.glob("test_*.py"))


@pytest.mark.parametrize("number", NUMBERS)
def test_a_row_is_held_by_processes(number: str) -> None:
    name = number.lower()
    own = [path.read_text() for path in TESTS.glob(f"test_{name}_*.py")]
    named = re.search(rf"def test_(?:\w+_)?{name}_\w+\(", of_whole_products())
    assert named or any(map(STARTS.search, own)), "no test of it starts a process"


@pytest.mark.parametrize("file", sorted(path.name for path in TESTS.glob("test_*.py")))
def test_every_test_of_a_requirement_belongs_to_one(file: str) -> None:
    found = TESTED.fullmatch(file)
    assert found and found[1].upper() in NUMBERS
    assert found[1].upper() in (TESTS / file).read_text().split("\n\n")[0]
