"""Keeping a worksheet on an installation whose days are too much to read."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.telemetry.reading import TooMuchToRead
from frontend.insights import revision_views
from tests.support.people import make_cast, signed_in


def test_too_much_to_read_is_told_and_nothing_is_kept(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(**_: Any) -> Any:
        raise TooMuchToRead

    monkeypatch.setattr(revision_views, "capacity_read", too_much)
    client = signed_in(make_cast().stella)
    posted = {"pool": "default", "days": 7, "quarter": "2030-Q1"}
    answer = client.post("/insights/capacity/keep", posted)
    assert answer.status_code == 302 and answer["location"].startswith("/insights/capacity")
    assert "Choose fewer days." in client.get(answer["location"]).content.decode()
