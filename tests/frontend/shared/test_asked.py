"""What a page of figures reads from its URL, and what its links keep."""

from datetime import UTC, datetime

from frontend.shared.asked import Choice, asked_from

NOW = datetime(2026, 11, 21, 9, 30, 20, tzinfo=UTC)
CHOICES = (Choice("by", "way to divide", ("model", "route")),)


def test_links_keep_all_but_defaults() -> None:
    query = {"range": "6h", "model": "tiny", "percentile": "99", "compare": "previous"}
    asked = asked_from({**query, "by": "route"}, NOW, CHOICES)
    assert not asked.complaint
    assert asked.compare
    assert asked.query == "range=6h&model=tiny&percentile=99&compare=previous&by=route"
    assert asked.kept_beside == {"percentile": "99", "compare": "previous", "by": "route"}
    assert asked_from({}, NOW, CHOICES).query == "range=1h"


def test_what_cannot_be_read_is_told_and_left_out() -> None:
    query = {"by": "moon", "compare": "never", "percentile": "98", "range": "2 years"}
    asked = asked_from(query, NOW, CHOICES)
    assert (asked.chosen, asked.compare, asked.percent) == ({"by": "model"}, False, 95)
    for text in query.values():
        assert f"“{text}”" in asked.complaint
