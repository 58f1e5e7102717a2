"""Every error code of both APIs is in docs/errors.md, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from controlplane.core.api.stepup import SecondFactorRequired, StepUpRequired
from controlplane.core.errors.body import CODES

ROOT = Path(__file__).parents[2]
# Where the code stands in a call that makes a refusal.
CODE_PLACE = {
    "Refusal": 1, "EdgeError": 1, "bad_field": 2, "bad_key": 1, "unavailable": 0,
    "internal_error": 0, "KeyRefused": 2, "over_budget": 1,
}  # fmt: skip
ROW = re.compile(r"^\| `(\w+)` \| (\d{3}) \|", re.MULTILINE)
SNAKE = re.compile(r"[a-z]+(_[a-z]+)+")


def codes_in(path: Path) -> set[str]:
    """Codes in the calls of one file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            found |= default_codes(node)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        place = CODE_PLACE.get(node.func.id)
        named = [word.value for word in node.keywords if word.arg == "code"]
        if place is not None:
            for given in [*node.args[place : place + 1], *named]:
                found |= texts(given)
    return found


def default_codes(function: ast.FunctionDef) -> set[str]:
    """The default of a parameter called `code`."""
    arguments = function.args.args
    defaults = function.args.defaults
    pairs = zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    return {text for argument, given in pairs if argument.arg == "code" for text in texts(given)}


def texts(node: ast.expr) -> set[str]:
    """Codes that an expression can be; both arms of a choice."""
    found = {
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }
    return {text for text in found if SNAKE.fullmatch(text)}


def test_every_code_is_documented_and_every_documented_code_exists() -> None:
    folders = [ROOT / "controlplane" / "gateway", ROOT / "controlplane" / "bridge"]
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    paths.append(ROOT / "controlplane" / "core" / "errors" / "edge.py")
    paths.append(ROOT / "controlplane" / "core" / "api" / "idempotency.py")
    used = set().union(*map(codes_in, paths))
    # Chosen by a variable in the parser.
    used |= {"unknown_parameter", "missing_required_parameter"}
    used |= {*CODES.values(), StepUpRequired.code, SecondFactorRequired.code}
    documented = dict(ROW.findall((ROOT / "docs" / "errors.md").read_text()))
    documented.pop("null", None)
    assert used == set(documented)
