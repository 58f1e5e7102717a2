"""Answers, charges and records are equal byte for byte to those that were kept, times apart."""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module
from typing import Any

import pytest

from tests.support.servers import Servers

CASES_MIN = 500


@pytest.fixture(scope="module")
def kept() -> Any:
    """Imported late, since it needs models."""
    return import_module("tests.recorded.kept")


def test_every_request_is_answered_charged_and_recorded_as_before(
    servers: Servers, kept: Any
) -> None:
    cases = import_module("tests.recorded.cases.everything").every_case()
    assert len(cases) >= CASES_MIN
    found = kept.differences(import_module("tests.recorded.play").play(servers, cases))
    assert not found, kept.report(found)


def test_any_difference_is_found_and_shown(kept: Any) -> None:
    records = list(kept.kept().values())
    assert kept.differences(records) == []
    changed = deepcopy(records)
    book = next(record for record in changed if record.get("books"))
    book["books"][0]["ledger"][1]["amount"] += 1
    answered = next(record for record in changed if record["case"] == "models-main")
    answered["answers"][0]["headers"].reverse()
    first, second = sorted(kept.differences(changed), key=len)
    assert f"{book['case']}, now" in first and '+     "amount"' in first
    assert "models-main, now" in second


def test_a_case_that_is_gone_or_new_is_a_difference(kept: Any) -> None:
    gone, *records = kept.kept().values()
    assert kept.differences(records) == [f"{gone['case']}: was kept, and is no longer sent"]
    new = {**gone, "case": "new"}
    assert kept.differences([gone, *records, new]) == ["new: nothing is kept of it; record anew"]
