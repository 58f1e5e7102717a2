"""Prometheus' text format, as its own parser reads it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from controlplane.telemetry.exposition import Exposition


def test_a_page_is_what_prometheus_reads() -> None:
    page = Exposition()
    odd = 'a"b\\c\nd'
    page.family("x_total", "counter", "Text").add({"model": odd}, 2**60 + 1)
    page.family("y", "histogram", "Text").add_histogram({"z": "1"}, ["0.5", "1"], [1, 2, 3], 9.5)
    page.one("w", "gauge", "Text", 0.25)
    text = page.to_bytes().decode()
    assert str(2**60 + 1) in text
    found = {
        (sample.name, sample.labels.get("le", sample.labels.get("model", ""))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found == {
        ("x_total", odd): 2**60 + 1,
        ("y_bucket", "0.5"): 1,
        ("y_bucket", "1"): 3,
        ("y_bucket", "+Inf"): 6,
        ("y_sum", ""): 9.5,
        ("y_count", ""): 6,
        ("w", ""): 0.25,
    }
    assert page.series == 7
