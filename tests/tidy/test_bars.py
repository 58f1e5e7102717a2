"""Bars of the house: folders, functions and template lines, one class a name, no cycles."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from statistics import quantiles

ROOT = Path(__file__).parents[2]
PRODUCT = ("controlplane", "inference", "frontend")
FOLDER_MODULES_MAX = 20
FUNCTION_LINES_P90_MAX = 20
TEMPLATE_LINE_CHARS_MAX = 120
# Django finds commands by this name.
COMMAND = "Command"


@cache
def tracked(*suffixes: str) -> tuple[Path, ...]:
    """Files of the product with these suffixes, migrations aside."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PRODUCT]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    paths = [ROOT / line for line in listed.stdout.splitlines() if line.endswith(suffixes)]
    return tuple(path for path in paths if path.exists() and "migrations" not in path.parts)


@cache
def trees() -> dict[Path, ast.Module]:
    """The parsed modules of the product."""
    return {path: ast.parse(path.read_text()) for path in tracked(".py")}


def name_of(path: Path) -> str:
    """A module's dotted name."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, known: set[str]) -> set[str]:
    """The modules of the product that a module imports."""
    found = set()
    # What only a checker of types reads is no import.
    typing = {
        inner
        for node in ast.walk(trees()[path])
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in node.body
    }
    for node in set(ast.walk(trees()[path])) - typing:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inner & known) or {node.module}
    return (found & known) - {name_of(path)}


def test_no_folder_holds_more_modules_than_one_can_survey() -> None:
    modules = Counter(path.parent for path in tracked(".py") if path.name != "__init__.py")
    large = {str(folder.relative_to(ROOT)): count for folder, count in modules.items()}
    assert {name: count for name, count in large.items() if count > FOLDER_MODULES_MAX} == {}


def test_a_public_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        if path.relative_to(ROOT).parts[0] == "controlplane":
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(name_of(path))
    twice = {name: found for name, found in places.items() if len(found) > 1 and name != COMMAND}
    assert twice == {}


def test_nine_functions_in_ten_fit_into_a_few_lines() -> None:
    lengths = [
        (node.end_lineno or 0) - node.lineno + 1
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert quantiles(lengths, n=10)[-1] <= FUNCTION_LINES_P90_MAX


def test_lines_of_templates_are_short() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked(".html")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > TEMPLATE_LINE_CHARS_MAX
    }
    assert long == set()


def test_imports_make_no_cycle() -> None:
    known = {name_of(path): path for path in trees()}
    left = {name: imports_of(path, set(known)) for name, path in known.items()}
    while leaves := {name for name, needs in left.items() if not needs & left.keys()}:
        left = {name: needs for name, needs in left.items() if name not in leaves}
    # What is left lies on cycles, or leads to one.
    assert set(left) == set()
