"""House rules that no linter holds: sizes, docstrings, banned words, ignores, skipped tests."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 400
TEMPLATE_CHARS_MAX = 120
FUNCTION_LINES_MAX = 60
# Put together, so that this file does not hold the words it looks for.
BANNED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
NO_CHECK = "no" + "qa"
BARE_IGNORE = re.compile(r"#\s*type:\s*" + r"ignore(?!\[)")
PRODUCT = ("controlplane", "frontend", "inference", "manage.py")
PRODUCT_LINES_MAX = 100_000
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# What else counts, each with how its comments begin.
BESIDE_PYTHON = {
    ".html": "{#", ".css": "/*", ".js": "//", ".sql": "--", ".c": "//", ".h": "//",
}  # fmt: skip
SKIPS = {"skip", "skipif", "xfail", "importorskip"}


@cache
def sources() -> tuple[Path, ...]:
    """Python files that are ours: tracked, or about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return tuple(path for line in listed.stdout.split() if (path := ROOT / line).exists())


@cache
def tree(path: Path) -> ast.Module:
    """A parsed file."""
    return ast.parse(path.read_text())


def shown(path: Path) -> str:
    """A path as messages name it."""
    return str(path.relative_to(ROOT))


def code_lines(path: Path) -> int:
    """Lines of a file of Python that are neither blank nor comments nor docstrings."""
    lines = path.read_text().splitlines()
    code = {
        number for number, line in enumerate(lines, 1) if line.strip() and line.strip()[0] != "#"
    }
    for node in ast.walk(tree(path)):
        body = getattr(node, "body", None)
        if isinstance(node, DOCUMENTED) and body and isinstance(body[0], ast.Expr):
            told = body[0]
            if isinstance(told.value, ast.Constant) and isinstance(told.value.value, str):
                code -= set(range(told.lineno, (told.end_lineno or 0) + 1))
    return len(code)


def skips(path: Path) -> list[int]:
    """Lines that skip a test."""
    return [
        node.lineno
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute)
        and node.attr in SKIPS
        and ast.unparse(node).startswith("pytest.")
    ]


def test_no_script_of_the_tests_hides_a_module_of_python() -> None:
    """The folder of a script comes first in its path: `operator.py` there breaks `import re`."""
    names = {path.stem for path in sources() if path.parent == ROOT / "tests" / "support"}
    assert names and not names & sys.stdlib_module_names


def test_the_product_stays_within_its_bound() -> None:
    """Without tests, benchmarks, migrations, blank lines, comments and docstrings."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PRODUCT]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    total = 0
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if not path.exists() or {"migrations", "vendor"} & set(path.parts):
            continue
        if path.suffix == ".py":
            total += code_lines(path)
        elif (comment := BESIDE_PYTHON.get(path.suffix)) is not None:
            stripped = (line.strip() for line in path.read_text().splitlines())
            total += sum(bool(line) and not line.startswith(comment) for line in stripped)
    assert 10_000 < total < PRODUCT_LINES_MAX


def test_files_are_short() -> None:
    # Django writes migrations, one for all tables of an app.
    written = [path for path in sources() if path.parent.name != "migrations"]
    lengths = {shown(path): len(path.read_text().splitlines()) for path in written}
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_lines_of_templates_are_short() -> None:
    templates = [*(ROOT / "frontend").glob("*/templates/**/*.html")]
    assert templates
    long = [
        f"{shown(path)}:{number}"
        for path in templates
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > TEMPLATE_CHARS_MAX
    ]
    assert long == []


def test_functions_are_short() -> None:
    long = {
        f"{shown(path)}:{node.name}"
        for path in sources()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES_MAX
    }
    assert long == set()


def test_every_module_says_what_it_is() -> None:
    silent = [
        shown(path)
        for path in sources()
        if path.read_text().strip() and not ast.get_docstring(tree(path))
    ]
    assert silent == []


def test_nothing_is_put_off() -> None:
    assert [shown(path) for path in sources() if BANNED.search(path.read_text())] == []


def test_no_check_is_switched_off_wholesale() -> None:
    loud = [
        shown(path)
        for path in sources()
        if NO_CHECK in path.read_text() or BARE_IGNORE.search(path.read_text())
    ]
    assert loud == []


def test_no_test_is_skipped() -> None:
    tests = [path for path in sources() if "tests" in path.parts]
    assert {shown(path): skips(path) for path in tests if skips(path)} == {}


@pytest.mark.parametrize("folder", ["controlplane", "inference", "frontend", "tests"])
def test_the_folders_are_looked_at(folder: str) -> None:
    assert any(path.is_relative_to(ROOT / folder) for path in sources())
