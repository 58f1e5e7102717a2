"""While an objective is in danger the room refuses a priority, and says that this is why."""

from __future__ import annotations

import asyncio

import msgspec

from controlplane.kernel.clock import wall_s
from controlplane.kernel.objectives.counting import SHED_CODE
from controlplane.kernel.rules import PRIORITY_LOW, PRIORITY_NORMAL
from tests.support.nodes import hand_node
from tests.support.serving import Serving

LEASE_S = 600.0


async def test_a_priority_that_is_kept_out_is_refused_at_once(bare: Serving) -> None:
    keys = bare.under_test.keys
    async with hand_node(bare.under_test, bare.model, credits=1) as node:
        keys.current = msgspec.structs.replace(
            keys.current, shed_until={PRIORITY_NORMAL: wall_s() + LEASE_S}
        )
        refused = await bare.chat(max_tokens=1)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (503, SHED_CODE)
        assert error["degraded"]["reason"] == "shed"
        assert int(refused.headers["retry-after"]) > 0
        assert not node.jobs
        # This one's time is over, whoever may have died meanwhile; another's is not.
        others = {PRIORITY_LOW: wall_s() + LEASE_S, PRIORITY_NORMAL: wall_s()}
        keys.current = msgspec.structs.replace(keys.current, shed_until=others)
        served = asyncio.create_task(bare.chat(max_tokens=1))
        await node.answer(await node.job(), "x", finish="length")
        assert (await served).status_code == 200
        await bare.under_test.at_rest()
    first = bare.under_test.recorder.records[0]
    assert (first.error_code, first.cost_nano) == (SHED_CODE, 0)
