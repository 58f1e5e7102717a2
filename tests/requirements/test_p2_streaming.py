"""P2: streaming is first-class: tokens leave as they are made, and the whole answer works too."""

from __future__ import annotations

import time

from tests.support.fleet import MODEL, echo_node
from tests.support.serving import CHAT_PATH, Serving

# Two seconds of tokens: a busy machine may take half of them to its first.
TOKENS, TOKENS_PER_S = 100, 50.0


async def test_text_arrives_while_the_rest_is_still_being_made(bare: Serving) -> None:
    messages = [{"role": "user", "content": "abcd"}]
    body = {"model": MODEL, "messages": messages, "max_tokens": TOKENS, "stream": True}
    async with echo_node(bare.under_test.fleet_url, bare.model, tokens_per_s=TOKENS_PER_S):
        await bare.under_test.served()
        began, arrivals = time.monotonic(), []
        async with bare.client.stream("POST", CHAT_PATH, json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    arrivals.append(time.monotonic() - began)
        await bare.under_test.at_rest()
    assert len(arrivals) > TOKENS / 2
    assert arrivals[0] < arrivals[-1] / 2


async def test_whole_answer(serving: Serving) -> None:
    answer = await serving.chat()
    assert answer.json()["choices"][0]["message"]["content"] == "abcdab"
