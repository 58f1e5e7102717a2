"""The words of the pages: those that a product's words were put in place of do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

FRONTEND = Path(__file__).parents[2] / "frontend"
# The word now, and what stood for it.
OLD = {
    "Add funds": "Pay in|Book it",
    "At current prices": "By the prices now",
    "Bottleneck": "[Bb]reaks first",
    "Cancelled by client": "[Cc]lients? left",
    "Concurrent": "(Requests|Sequences) at once",
    "Confirm": "Begin again|Everything lost",
    "Discard": "Give (it )?up",
    "Disable": "[Ss]witche?[ds]? off",
    "Forecast": "[Ff]oreseen",
    "Max.": "Output at most|At most so old|At least, ms|First token by",
    "Multiplier": "(Low|High), ‰|priority, ‰",
    "No key-level limits": "none of its own|none: from anywhere|none chosen",
    "One per line": "one a line|A line each",
    "Other": "Unattributed",
    "Previous": "Newer k|Older j",
    "Remove": "Take (away|back)",
    "Resume": "Go on",
    "Save": "Keep this|Kept revisions",
    "Scope": "Of / By|\\*Of \\.break",
    "Sort by": "dearest|First in the list",
    "Stored": "kept requests|[Kk]ept sealed",
    "Total": "^in all$",
    "Unassigned": "nobody yet",
}


def _said() -> Iterator[tuple[str, str]]:
    """Templates and scripts as they are, and the texts of modules without what documents them."""
    for path in FRONTEND.rglob("*.*"):
        if "vendor" in path.parts:
            continue
        if path.suffix in (".html", ".js"):
            yield path.name, re.sub(r"(?m)^\s*(//|\*|/\*).*$|\{#.*?#\}", "", path.read_text())
        elif path.suffix == ".py":
            tree = ast.parse(path.read_text())
            told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
            for node in constants:
                if isinstance(node.value, str) and id(node) not in told:
                    yield path.name, node.value


@pytest.mark.parametrize("better", OLD)
def test_no_page_says_the_old_word(better: str) -> None:
    old = re.compile(OLD[better])
    assert [f"{name}: {hit[0]}" for name, text in _said() for hit in old.finditer(text)] == []
