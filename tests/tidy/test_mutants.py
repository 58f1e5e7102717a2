"""Each mutant still has its line, and tests that may find it."""

from __future__ import annotations

import pytest

from tests.mutants.table import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_its_line_stands_where_it_says(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text().count(mutant.before) == 1
    assert mutant.before != mutant.after
    assert [test for test in mutant.tests if not (ROOT / test).exists()] == []
