"""The pipeline over real sockets with an echo node: answers, money and records of each ending."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from controlplane.kernel.price import TokenCounts, charge_nano
from tests.support.fleet import MODEL, echo_node, make_model
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.ports import PRICE
from tests.support.waiting import until

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "abcd"}], "max_tokens": 6}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[tuple[GatewayUnderTest, httpx2.AsyncClient]]:
    """A gateway with one echo node that makes a token each 5 ms."""
    under_test = GatewayUnderTest()
    async with (
        running_gateway(under_test) as client,
        echo_node(under_test.fleet_url, make_model(tmp_path), tokens_per_s=200.0),
    ):
        await under_test.served()
        yield under_test, client


async def test_whole_answer_is_charged_once(
    gateway: tuple[GatewayUnderTest, httpx2.AsyncClient],
) -> None:
    under_test, client = gateway
    answer = await client.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["choices"][0]["message"]["content"] == "abcdab"
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["prompt_tokens"] == 4
    assert body["usage"]["completion_tokens"] == 6
    await under_test.at_rest()
    (settlement,) = under_test.ledger.settled.values()
    counts = TokenCounts(uncached=4, cached=0, output=6)
    assert settlement.amount_nano == charge_nano(PRICE, counts)
    (record,) = under_test.recorder.records
    assert (record.status, record.finish, record.output_tokens) == (200, "length", 6)


async def test_stream_ends_with_usage_and_done(
    gateway: tuple[GatewayUnderTest, httpx2.AsyncClient],
) -> None:
    under_test, client = gateway
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    answer = await client.post("/v1/chat/completions", json=body)
    events = answer.text.removesuffix("\n\n").split("\n\n")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert events[-1] == "data: [DONE]"
    assert '"completion_tokens":6' in events[-2]
    assert all('"usage":null' in event for event in events[:-2])
    await under_test.at_rest()


async def test_client_that_leaves_pays_for_what_was_generated(
    gateway: tuple[GatewayUnderTest, httpx2.AsyncClient],
) -> None:
    under_test, client = gateway
    body = {**CHAT, "stream": True, "max_tokens": 1000}
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        async for _ in answer.aiter_bytes():
            break
    await under_test.at_rest()
    (settlement,) = under_test.ledger.settled.values()
    assert 1 <= settlement.counts.output < 1000
    (record,) = under_test.recorder.records
    assert record.status == 499


async def test_whole_answer_that_nobody_waits_for_is_stopped(
    gateway: tuple[GatewayUnderTest, httpx2.AsyncClient],
) -> None:
    under_test, client = gateway
    with pytest.raises(httpx2.ReadTimeout):
        await client.post("/v1/chat/completions", json={**CHAT, "max_tokens": 1000}, timeout=0.2)
    await under_test.at_rest()
    (settlement,) = under_test.ledger.settled.values()
    assert 1 <= settlement.counts.output < 1000


async def test_stop_string_over_token_borders(
    gateway: tuple[GatewayUnderTest, httpx2.AsyncClient],
) -> None:
    under_test, client = gateway
    answer = await client.post(
        "/v1/chat/completions", json={**CHAT, "max_tokens": 1000, "stop": ["da"]}
    )
    choice = answer.json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("abc", "stop")
    assert answer.json()["usage"]["completion_tokens"] == 5
    await under_test.at_rest()


async def test_ledger_away_refuses_before_any_work(
    gateway: tuple[GatewayUnderTest, httpx2.AsyncClient],
) -> None:
    under_test, client = gateway
    under_test.ledger.away = True
    answer = await client.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "ledger_unavailable"
    assert answer.headers["retry-after"] == "1"


async def test_ledger_away_at_the_end_means_no_done(
    gateway: tuple[GatewayUnderTest, httpx2.AsyncClient],
) -> None:
    under_test, client = gateway
    under_test.ledger.away_at_settle = True
    answer = await client.post("/v1/chat/completions", json={**CHAT, "stream": True})
    assert "[DONE]" not in answer.text
    assert '"code":"ledger_unavailable"' in answer.text
    await until(lambda: under_test.ledger.reports)


async def test_no_node_is_said_at_once(tmp_path: Path) -> None:
    under_test = GatewayUnderTest()
    async with running_gateway(under_test) as client:
        answer = await client.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "no_node_available"
    assert int(answer.headers["retry-after"]) > 0
    assert not under_test.ledger.open
