"""P8, what is there of it: no silent wait; full nodes and no node are both said honestly."""

from __future__ import annotations

import asyncio
import time

import pytest

from controlplane.gateway.waiting import crowd
from tests.support.nodes import hand_node
from tests.support.serving import Serving


async def test_no_node_is_said_at_once(bare: Serving) -> None:
    began = time.monotonic()
    answer = await bare.chat()
    assert time.monotonic() - began < 1
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_node_available")
    assert int(answer.headers["retry-after"]) > 0


async def test_full_queue_is_said_at_once(bare: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "WAITING_MAX", 0)
    async with hand_node(bare.under_test, bare.model, credits=1) as node:
        running = asyncio.create_task(bare.chat(max_tokens=1))
        job = await node.job()
        answer = await bare.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_is_overloaded")
        await node.answer(job, "x", finish="length")
        assert (await running).status_code == 200
        await bare.under_test.at_rest()
