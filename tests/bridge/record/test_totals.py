"""Sums for Prometheus: nothing is lost with a minute that is forgotten, and labels have bounds."""

from __future__ import annotations

import asyncio
import random

import yaml
from prometheus_client.parser import text_string_to_metric_families

from controlplane.bridge.metrics.page import SERIES_MAX, metrics_page
from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.bridge.record.series import FOLDED_AT_ONCE, OTHER, GaugeSample, Minutes
from controlplane.bridge.record.totals import STAGE_BOUNDS, US_PER_S, Latency, RunningTotals
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import ACCEPTED, BREAKER_OPENED, DRAFTED
from tests.support.dashboards import DOCKER, NAME
from tests.support.gateway import GatewayUnderTest
from tests.support.records import make_record

MODEL = "sluice-5m"
DROPS_ALERT = "SluiceTelemetryDrops"


def written(minutes: Minutes) -> None:
    """As after a flush."""
    minutes.fold_all()
    for minute in minutes.kept():
        minute.dirty.clear()
        minute.dirty_usage.clear()
        minute.exemplars.clear()


def test_what_was_counted_outlives_its_minute() -> None:
    totals = RunningTotals()
    minutes = Minutes(totals.retire)
    for number in range(6):
        record = make_record(total_us=1_000_000)
        minutes.at(number * 60.0).add(record)
        totals.count([record])
        minutes.at(number * 60.0).note(GaugeSample(MODEL, "", DRAFTED, 10))
        minutes.at(number * 60.0).note(GaugeSample(MODEL, "", ACCEPTED, 7))
        for pool in ("", "default"):
            minutes.at(number * 60.0).note(GaugeSample(MODEL, pool, BREAKER_OPENED, 1))
        written(minutes)
    assert len(minutes.kept()) < 6
    for _ in range(2):
        # Reading changes nothing.
        sums = totals.sums(minutes.kept())
        assert sums.usage == {(MODEL, "direct"): [6, 0, 0, 84, 96, 120, 576, 144, 120]}
        stage = sums.latency("s1_admission", MODEL)
        assert (sum(stage.counts), stage.total_us) == (6, 600)
        assert sums.tallies == {
            (DRAFTED, MODEL): 60,
            (ACCEPTED, MODEL): 42,
            (BREAKER_OPENED, "default"): 6,
        }
    assert totals.requests == {(MODEL, "direct", 2): 6}


def test_classic_buckets_are_right_but_for_values_at_a_bound() -> None:
    draw = random.Random(7)
    values = [max(1, round(draw.lognormvariate(9.0, 2.5))) for _ in range(5_000)]
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    latency = Latency()
    latency.add(histogram)
    assert (sum(latency.counts), latency.total_us) == (len(values), sum(values))
    for place, bound_s in enumerate(STAGE_BOUNDS):
        bound = bound_s * US_PER_S
        found = sum(latency.counts[: place + 1])
        below = sum(value <= bound / 1.011 for value in values)
        assert below <= found <= sum(value <= bound * 1.011 for value in values)


async def test_labels_are_bounded_and_nothing_is_lost() -> None:
    recorder = PostgresRecorder("")
    count = 0
    for model in range(60):
        for route in range(30):
            status, code = ((200, ""), (429, f"code-{route * 60 + model}"), (503, "x"))[count % 3]
            record = make_record(
                model=f"m{model}",
                route=f"r{route}",
                pool=f"p{model}",
                status=status,
                error_code=code,
                operation=("chat", "completion", "embedding")[model % 3],
                finish=f"f{route}",
            )
            recorder.record(record)
            count += 1
    await recorder.fold()
    page = metrics_page(GatewayUnderTest().world, recorder, ())
    assert page.series <= SERIES_MAX
    figures = [
        sample
        for family in text_string_to_metric_families(page.to_bytes().decode())
        for sample in family.samples
    ]

    def total(name: str) -> float:
        return sum(sample.value for sample in figures if sample.name == name)

    assert total("sluice_requests_total") == count
    assert total("sluice_output_tokens_total") == 20 * count
    assert total("gen_ai_server_request_duration_seconds_count") == count
    models = {s.labels["model"] for s in figures if s.name == "sluice_requests_total"}
    assert "other" in models and len(models) < 20
    assert total("sluice_folded_names_total") > 0


async def test_forty_models_are_no_loss_and_no_alert() -> None:
    recorder, models = PostgresRecorder(""), 40
    for number in range(models):
        for status in (200, 429, 503):
            error = "" if status == 200 else "model_overloaded"
            recorder.record(make_record(model=f"m{number}", status=status, error_code=error))
    await recorder.fold()
    page = metrics_page(GatewayUnderTest().world, recorder, ()).to_bytes().decode()
    samples = [one for each in text_string_to_metric_families(page) for one in each.samples]

    def total(name: str, **labels: str) -> float:
        return sum(
            one.value
            for one in samples
            if one.name == name and labels.items() <= one.labels.items()
        )

    assert total("sluice_folded_names_total") > 0
    groups = yaml.safe_load((DOCKER / "prometheus" / "alerts.yml").read_text())["groups"]
    (alert,) = (each for one in groups for each in one["rules"] if each["alert"] == DROPS_ALERT)
    watched = set(NAME.findall(alert["expr"]))
    assert "sluice_dropped_series_total" in watched
    assert {name: total(name) for name in watched} == dict.fromkeys(watched, 0)
    duration, other = (
        "gen_ai_server_request_duration_seconds_count",
        {"gen_ai_request_model": OTHER},
    )
    assert total(duration) == 3 * models
    assert 0 < total(duration, **other, error_type="_OTHER") < total(duration, **other)
    usage = "gen_ai_client_token_usage_count"
    kinds = [total(usage, gen_ai_token_type=kind) for kind in ("input", "output")]
    assert kinds == [3 * models] * 2


async def test_others_run_while_a_scrape_adds_up() -> None:
    recorder = PostgresRecorder("")
    slices = 4
    for _ in range(slices * FOLDED_AT_ONCE):
        recorder.record(make_record())
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await recorder.fold()
    task.cancel()
    assert turns >= slices - 1
    assert sum(counts[0] for counts in recorder.sums().usage.values()) == slices * FOLDED_AT_ONCE
