"""I1: prefill and decode are separate phases with times of their own; prefill comes in chunks."""

from __future__ import annotations

from controlplane.kernel.spans import INDEX, unpack_spans
from inference.compact.options import CompactOptions
from inference.engines.compact import CompactEngine
from tests.support.fleet import MODEL, running_node
from tests.support.serving import Serving
from tests.support.shipped import SHIPPED, long_prompt, no_end

CHUNK_TOKENS = 64


async def answer_in_steps_of(bare: Serving, step_tokens: int) -> str:
    options = CompactOptions(name=MODEL, device="cpu", dtype="float32", step_tokens=step_tokens)
    engine = CompactEngine(SHIPPED, options)
    async with running_node(engine, bare.under_test.fleet_url, SHIPPED):
        await bare.under_test.served()
        answer = await bare.complete(
            prompt=long_prompt(300), max_tokens=12, temperature=0, logit_bias=no_end()
        )
        assert answer.status_code == 200, answer.text
        await bare.under_test.at_rest()
    return str(answer.json()["choices"][0]["text"])


async def test_both_phases_are_timed_and_chunks_change_nothing(bare: Serving) -> None:
    whole = await answer_in_steps_of(bare, 1024)
    chunked = await answer_in_steps_of(bare, CHUNK_TOKENS)
    assert whole == chunked
    for record in bare.under_test.recorder.records:
        spans = unpack_spans(record.spans)
        assert spans[INDEX["s5_infer.prefill"]][1] > 0
        assert spans[INDEX["s5_infer.decode"]][1] > 0
