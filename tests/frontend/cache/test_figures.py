"""The Cache page's arithmetic: what reuse delivered and saved, and why the rest was missed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from controlplane.kernel.price import Price
from controlplane.kernel.spans import ABSENT, INDEX, SPANS, pack_spans
from controlplane.telemetry.selectors import Point, UsageSum
from controlplane.telemetry.selectors_requests import Sampled
from frontend.cache.figures import BY_WORDS_STAFF, Cache, Read, by_choices, count_misses, make_cache
from frontend.shared.asked import asked_from

NOW = datetime(2026, 11, 21, 9, 15, tzinfo=UTC)
START = NOW - timedelta(minutes=15)
PRICE = Price(version=1, input_pico=150_000, cached_pico=15_000, output_pico=600_000)
USAGE = UsageSum(requests=10, uncached=300_000, cached=700_000, available=900_000, captured=800_000)


def _spans(prefill_us: int) -> bytes:
    starts, lengths = [ABSENT] * len(SPANS), [0] * len(SPANS)
    if prefill_us:
        starts[INDEX["s5_infer.prefill"]], lengths[INDEX["s5_infer.prefill"]] = 5, prefill_us
    return pack_spans(starts, lengths)


def _sampled(cause: str, *, avoidable: int = 0, prefill_us: int = 0, cached: int = 0) -> Sampled:
    told = {"cause": cause, "missed_tokens": 400, "avoidable_tokens": avoidable, "cost_nano": 7}
    return Sampled(1_000, cached, _spans(prefill_us), json.dumps({"miss": told}).encode())


def _made(by: str = "model", sample: tuple[Sampled, ...] = ()) -> Cache:
    asked = asked_from({"range": "15m", "by": by}, NOW, by_choices(BY_WORDS_STAFF))
    read = Read(
        points={START: Point(START, usage=USAGE)},
        before={START: Point(START, usage=UsageSum(requests=1, uncached=50, cached=50))},
        by={"tiny": USAGE, "unpriced": UsageSum(requests=1, uncached=10, cached=5)},
        by_model={"tiny": USAGE},
        prices={"tiny": PRICE},
        names={"tiny": "The small one"},
        misses=count_misses(sample),
    )
    return make_cache(read, asked)


def _texts(made: Cache) -> dict[str, str]:
    return {cell.key: cell.text for tile in made.tiles for cell in tile.shown}


def test_shares_money_and_time_of_what_was_not_computed_again() -> None:
    # 2 us a token, so 700,000 tokens would have taken 1.4 s.
    texts = _texts(_made(sample=(_sampled("text", prefill_us=2_000), _sampled("text"))))
    shares = [texts[key] for key in ("cache", "cache.captured", "cache.available")]
    assert shares == ["70.0 %", "80.0 %", "90.0 %"]
    assert texts["saved"] == "$0.0945"
    assert texts["seconds"] == "1.40 s"
    assert texts["cache.before"].endswith("(+40 %)")


def test_time_saved_is_not_guessed_where_no_prefill_was_measured() -> None:
    texts = _texts(_made(sample=(_sampled("text", cached=1_000, prefill_us=900),)))
    assert texts["seconds"] == "–"
    assert "no prefill measurement" in texts["seconds.how"]


def test_causes_are_added_up_and_the_most_avoidable_comes_first() -> None:
    rows = (
        *(_sampled("new_text") for _ in range(3)),
        *(_sampled("timestamp", avoidable=300) for _ in range(2)),
        Sampled(1_000, 0, b"", b"not JSON"),
        Sampled(1_000, 0, b"", json.dumps({"miss": {"cause": "unheard of"}}).encode()),
        Sampled(1_000, 0, b"", b""),
    )
    found = count_misses(rows)
    assert (found.sampled, found.prefill_us) == (8, None)
    told = [(one.name, one.requests, one.missed, one.avoidable, one.nano) for one in found.causes]
    assert told == [("timestamp", 2, 800, 600, 14), ("new_text", 3, 1_200, 0, 21)]
    panel = next(one for one in _made(sample=rows).panels if one.name == "causes")
    assert panel.rows()[0][1:5] == ["2", "800", "600", "0.000000014"]


def test_groups_have_names_and_only_models_have_money() -> None:
    by_model = _made().groups
    assert by_model.head[-1] == "Saved, USD"
    assert by_model.rows()[0] == [
        "The small one", "10", "1000000", "700000", "70.0", "80.0", "90.0", "0.094500000",
    ]  # fmt: skip
    assert by_model.rows()[1][-1] == "–"
    assert by_model.shown[0][2] == ("Prompt tokens", "1,000,000")
    assert _made(by="route").groups.head[-1] == "Available, %"


def test_every_panel_has_rows_under_its_head() -> None:
    made = _made(sample=(_sampled("text"),))
    assert len({panel.name for panel in made.panels}) == len(made.panels)
    assert all(len(row) == len(panel.head) for panel in made.panels for row in panel.rows())
