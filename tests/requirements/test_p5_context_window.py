"""P5: what does not fit the context window is refused, clearly and before any node hears of it."""

from __future__ import annotations

from tests.support.nodes import hand_node
from tests.support.serving import Serving

WINDOW = 4096


async def test_overflow_is_refused_before_any_node_sees_it(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model) as node:
        for length, tokens in ((WINDOW, 1), (WINDOW - 5, 6), (100_000, 1)):
            message = {"role": "user", "content": "x" * length}
            answer = await bare.chat(messages=[message], max_tokens=tokens)
            assert answer.status_code == 400
            error = answer.json()["error"]
            assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
            assert str(WINDOW) in error["message"]
        assert node.jobs == []
        await bare.under_test.at_rest()
    assert all(each.amount_nano == 0 for each in bare.under_test.ledger.settled.values())


async def test_what_just_fits_is_served(serving: Serving) -> None:
    message = {"role": "user", "content": "x" * (WINDOW - 6)}
    answer = await serving.chat(messages=[message], max_tokens=6)
    assert answer.json()["usage"]["total_tokens"] == WINDOW
