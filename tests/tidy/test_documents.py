"""Every setting stands in docs/operations.md, and the README leads to every document."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETTING = re.compile(r"(SLUICE_[A-Z_]+|[A-Z_]+_URL)")
ROW = re.compile(r"^\|((?: ?`[A-Z_]+`,?)+) \|", re.MULTILINE)
LINK = re.compile(r"\]\((docs/[a-z-]+\.md)\)")


def read() -> set[str]:
    """Environment variables that a module of settings names as a first argument."""
    return {
        node.args[0].value
        for path in (ROOT / "controlplane" / "settings").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
        and SETTING.fullmatch(node.args[0].value)
    }


def told() -> set[str]:
    """Environment variables in first cells of tables."""
    rows = ROW.findall((ROOT / "docs" / "operations.md").read_text())
    return {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)}


def test_every_setting_is_documented() -> None:
    assert len(read()) > 20
    assert read() - told() == set()


def test_the_readme_leads_to_every_document() -> None:
    # The first page of the site says the same in its own way.
    documents = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} - {"docs/index.md"}
    assert set(LINK.findall((ROOT / "README.md").read_text())) == documents
