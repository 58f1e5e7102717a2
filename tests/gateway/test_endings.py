"""Endings that money or a retry could get wrong, driven by a node whose frames the test writes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from controlplane.kernel.rules import RouteRule, Step, Target
from tests.support.fleet import MODEL, make_output, make_step, make_usage
from tests.support.nodes import hand_node
from tests.support.serving import Serving
from tests.support.waiting import until

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "abcd"}], "max_tokens": 6}


async def test_an_answer_that_ends_at_once_is_charged(bare: Serving, model: Path) -> None:
    async with hand_node(bare.under_test, model) as node:
        asking = asyncio.create_task(bare.client.post("/v1/chat/completions", json=CHAT))
        job = await node.job()
        # The end token itself is generated and counted, but never shown.
        usage = make_usage(prompt=4, completion=1)
        end = make_output(job.request, tokens=[], usage=usage, finish="stop")
        await node.send(make_step(end))
        answer = await asking
        assert answer.json()["usage"]["prompt_tokens"] == 4
        assert answer.json()["usage"]["completion_tokens"] == 1
        await bare.under_test.at_rest()
    (settlement,) = bare.under_test.ledger.settled.values()
    assert (settlement.counts.uncached, settlement.counts.output) == (4, 1)


async def test_the_deadline_is_ours_even_while_the_node_steps(bare: Serving, model: Path) -> None:
    bare.under_test.world.request_deadline_s = 1
    async with hand_node(bare.under_test, model) as node:
        asking = asyncio.create_task(bare.client.post("/v1/chat/completions", json=CHAT))
        job = await node.job()
        await until(lambda: node.cancelled)
        await node.answer(job, finish="cancelled")
        answer = await asking
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "deadline_exceeded"
        await bare.under_test.at_rest()
    (settlement,) = bare.under_test.ledger.settled.values()
    assert settlement.amount_nano == 0


async def test_a_failed_attempt_is_cancelled_and_its_node_left(bare: Serving, model: Path) -> None:
    ask = {**CHAT, "n": 2}
    async with (
        hand_node(bare.under_test, model, name="one") as one,
        hand_node(bare.under_test, model, name="two") as two,
    ):
        asking = asyncio.create_task(bare.client.post("/v1/chat/completions", json=ask))
        await until(lambda: one.jobs or two.jobs)
        first, second = (one, two) if one.jobs else (two, one)
        lost = await first.job()
        await first.answer(lost, finish="error", choice=0)
        await until(lambda: first.cancelled)
        job = await second.job()
        await first.answer(lost, finish="cancelled", choice=1)
        await second.answer(job, "ab", finish="stop", choice=0)
        await second.answer(job, "cd", finish="stop", choice=1)
        answer = await asking
        assert answer.headers["x-sluice-node"] == ("two" if first is one else "one")
        reasons = [choice["finish_reason"] for choice in answer.json()["choices"]]
        assert reasons == ["stop", "stop"]
        await bare.under_test.at_rest()


async def test_a_bug_is_recorded_as_one_and_costs_nothing(
    bare: Serving, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("bug")

    async with hand_node(bare.under_test, model) as node:
        asking = asyncio.create_task(bare.client.post("/v1/chat/completions", json=CHAT))
        job = await node.job()
        monkeypatch.setattr("controlplane.gateway.tasks.generation.write_end", broken)
        await node.answer(job, "abcdab", finish="length")
        answer = await asking
        assert answer.status_code == 500
        await bare.under_test.at_rest()
    (settlement,) = bare.under_test.ledger.settled.values()
    assert settlement.amount_nano == 0
    (record,) = bare.under_test.recorder.records
    assert (record.status, record.error_code) == (500, "internal_error")


async def test_a_text_that_cannot_fit_is_refused_unencoded(bare: Serving, model: Path) -> None:
    text = "x" * 5_000_000
    body = {**CHAT, "messages": [{"role": "user", "content": text}]}
    async with hand_node(bare.under_test, model):
        answer = await bare.client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        (record,) = bare.under_test.recorder.records
        assert record.status == 400
        await bare.under_test.at_rest()


async def test_a_pool_of_a_rule_is_where_its_requests_go(bare: Serving, model: Path) -> None:
    target = Target(model=MODEL, pool="elsewhere")
    rule = RouteRule(name="far", version=1, steps=(Step(targets=(target,)),))
    keys = bare.under_test.keys
    keys.current = msgspec.structs.replace(keys.current, rules=(rule,))
    async with hand_node(bare.under_test, model):
        answer = await bare.client.post("/v1/chat/completions", json=CHAT)
    assert answer.json()["error"]["code"] == "no_node_available"
