"""docs/exports.md has each column of each file, in order, in the words of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.billing.exports.kinds import PAGES
from controlplane.billing.exports.models import ExportKind

DOCS = Path(__file__).parents[3] / "docs" / "exports.md"


@pytest.mark.parametrize("kind", list(PAGES))
def test_every_column_is_documented(kind: ExportKind) -> None:
    section = DOCS.read_text().partition(f"\n## {kind.label}\n")[2].partition("\n## ")[0]
    told = [line for line in section.splitlines() if line.startswith("| `")]
    columns = PAGES[kind].columns
    assert told == [f"| `{one.name}` | {one.cell.value} | {one.says} |" for one in columns]
