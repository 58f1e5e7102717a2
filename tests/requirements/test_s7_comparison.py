"""S7: four ways to ask one's own deployment, timed by a client of its gateway, kept and shown."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from controlplane.insights.client import Client, Refused
from controlplane.insights.compare import (
    MANNERS,
    Cards,
    Outcome,
    Setup,
    body_of,
    compare,
    rank,
)
from controlplane.kernel.price import TokenCounts, charge_nano
from tests.support.fleet import MODEL
from tests.support.people import make_cast, signed_in
from tests.support.ports import KEY, PRICE
from tests.support.serving import Serving

SETUP = Setup(large=MODEL, small=MODEL, requests=4, output_tokens=6, words=30)


async def run(serving: Serving, setup: Setup = SETUP) -> list[Outcome]:
    """All four ways against the gateway under test; the client blocks, so in a thread."""
    told: list[Outcome] = []
    work = partial(
        compare,
        setup,
        partial(Client, serving.under_test.url, KEY),
        {MODEL: Cards(nano_per_s=1_000, nodes=1)},
        done=told.append,
    )
    found = await asyncio.to_thread(work)
    assert told == found
    return found


async def test_each_way_is_timed_and_charged_as_the_gateway_charged_it(serving: Serving) -> None:
    found = await run(serving)
    await serving.under_test.at_rest()
    assert [one.name for one in found] == ["baseline", "gateway", "streaming", "whole"]
    assert all((one.requests, one.failed) == (4, 0) for one in found)
    records = serving.under_test.recorder.records
    # A first request of each way is not counted.
    assert len(records) == 4 * 5
    assert [record.stream for record in records] == [False] * 10 + [True] * 10
    for one in found:
        assert one.output_tokens == 4 * 6
        uncached = one.prompt_tokens - one.cached_tokens
        counts = TokenCounts(uncached=uncached, cached=one.cached_tokens, output=24)
        # Each charge is rounded by itself.
        assert one.charged_nano == pytest.approx(charge_nano(PRICE, counts), abs=4)
        assert one.per_thousand_nano == one.charged_nano * 1_000 // 24
        assert one.card_nano == pytest.approx(one.seconds * 1_000, abs=1)
    assert found[2].prompt_tokens < found[0].prompt_tokens
    # Six tokens at 2 ms each: whoever streams sees the first long before the last.
    assert found[2].ttft_p50_us < found[2].latency_p50_us
    assert found[0].ttft_p50_us == found[0].latency_p50_us


def test_only_the_last_way_keeps_what_is_shared_in_front() -> None:
    for manner in MANNERS:
        first, second = (
            body_of(SETUP, manner, number)["messages"][0]["content"] for number in (1, 2)
        )
        assert (first == second) is manner.shared
        assert first.startswith("Request ") is not manner.shared


async def test_a_way_ends_when_its_time_is_over(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter(range(10_000))
    monkeypatch.setattr("controlplane.insights.compare.monotonic_s", lambda: float(next(moments)))
    found = await run(serving, Setup(large=MODEL, small=MODEL, requests=50, seconds=4, words=5))
    assert all(1 <= one.requests <= 4 for one in found)


async def test_without_any_answer_it_says_what_the_gateway_said(bare: Serving) -> None:
    with pytest.raises(Refused, match="No node serves"):
        await run(bare)


def test_percentiles_are_values_that_were_seen() -> None:
    values = [5, 7, 9, 400]
    assert (rank(values, 0.5), rank(values, 0.95), rank([3], 0.95)) == (7, 400, 3)


@pytest.mark.usefixtures("database")
def test_the_command_names_what_is_wrong_before_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUICE_API_KEY", raising=False)
    with pytest.raises(CommandError, match="--requests is 1 to"):
        call_command("sluice", "compare", "--requests", "100000")
    with pytest.raises(CommandError, match="--large: No node serves"):
        call_command("sluice", "compare")
    with pytest.raises(CommandError, match="SLUICE_API_KEY"):
        call_command("sluice", "preflight", "-", "--url", "http://127.0.0.1:1")


@pytest.mark.usefixtures("database")
def test_pages_and_api_say_what_to_do_before_the_first_one() -> None:
    cast = make_cast()
    client = signed_in(cast.alice)
    page = client.get("/insights/comparison").content.decode()
    assert "manage.py sluice compare" in page
    told: Any = client.get(f"/api/insights/organizations/{cast.acme.id}/comparisons").json()
    assert told == {"comparisons": []}
