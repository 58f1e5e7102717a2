"""What only an engine that embeds has to keep: vectors in parts, counts, refusals by field.

`test_contract.py` holds it to what all engines have in common.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from inference.contract.frames import INPUTS_MAX, INPUTS_TOKENS_MAX
from inference.embed.encoder import Encoder
from inference.embed.shape import read_shape
from inference.engines.embed import EmbedEngine, EmbedOptions
from inference.errors import JobRefused
from tests.inference.engines.sink import Sink
from tests.support.encoders import (
    CONTEXT,
    PIECES,
    make_embed_job,
    make_encoder,
    vectors_of,
)

STEP_TOKENS = 20
FLOATS = "f"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_encoder(tmp_path)


@pytest.fixture
async def engine(folder: Path) -> AsyncIterator[EmbedEngine]:
    options = EmbedOptions(device="cpu", dtype="float32", step_tokens=STEP_TOKENS, running_max=3)
    made = EmbedEngine(folder, options)
    yield made
    await made.close()


@pytest.fixture
async def sink(engine: EmbedEngine) -> Sink:
    events = Sink()
    await engine.start(events)
    return events


async def test_prompts_are_refused_by_field(engine: EmbedEngine) -> None:
    job = msgspec.structs.replace(make_embed_job(1, []), tokens=[5])
    with pytest.raises(JobRefused, match="inputs") as refused:
        engine.submit(job)
    assert refused.value.code == "bad_job"


async def test_vectors_of_all_inputs_in_parts(
    engine: EmbedEngine, sink: Sink, folder: Path
) -> None:
    jobs = [
        make_embed_job(name, [[5 + i] * (1 + i * name % 9) for i in range(12)]) for name in (1, 2)
    ]
    for job in jobs:
        engine.submit(job)
    alone = Encoder(folder, read_shape(folder), dtype="float32", device="cpu")
    for job in jobs:
        outputs = await sink.finished(job.request)
        found = vectors_of(outputs)
        assert sorted(found) == list(range(12)) and len(outputs) > 1
        for place, ids in enumerate(job.inputs):
            expected = alone.encode([ids])[0].tolist()
            assert array(FLOATS, found[place]).tolist() == pytest.approx(expected, abs=2e-6)


async def test_usage_and_times_grow_to_the_whole(engine: EmbedEngine, sink: Sink) -> None:
    job = make_embed_job(1, [[5] * 10] * 7)
    engine.submit(job)
    outputs = await sink.finished(job.request)
    counts = [output.usage.prompt_tokens for output in outputs]
    assert counts == [20, 40, 60, 70]
    assert [output.finish for output in outputs] == [None, None, None, "stop"]
    assert all(output.usage.completion_tokens == 0 for output in outputs)
    computed = [output.timing.prefill_us for output in outputs]
    assert computed == sorted(computed) and computed[0] > 0
    assert outputs[-1].timing.held_us >= computed[-1]


async def test_a_cancel_ends_it_after_the_step_under_way(engine: EmbedEngine, sink: Sink) -> None:
    running, queued = make_embed_job(1, [[5] * 20] * 200), make_embed_job(2, [[6] * 20] * 200)
    engine.submit(running)
    await sink.until(lambda: len(sink.outputs[running.request]) >= 2)
    engine.submit(queued)
    engine.cancel(queued.request)
    steps = len(sink.steps)
    engine.cancel(running.request)
    engine.cancel(running.request)
    ended = await sink.finished(running.request)
    never = await sink.finished(queued.request)
    assert len(sink.steps) <= steps + 2
    assert (ended[-1].finish, never[-1].finish) == ("cancelled", "cancelled")
    assert ended[-1].vectors is None
    assert ended[-1].usage.prompt_tokens == 20 * len(vectors_of(ended)) < 4000
    assert never[-1].usage.prompt_tokens == 20 * len(vectors_of(never))
    last = sink.steps[-1]
    assert (last.running, last.waiting, last.waiting_tokens) == (0, 0, 0)


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"inputs": []}, "bad_job", "inputs: 0 is outside"),
        ({"inputs": [[5]] * (INPUTS_MAX + 1)}, "bad_job", "inputs: 2049"),
        ({"inputs": [[5], []]}, "bad_job", r"inputs\[1\]: is empty"),
        ({"inputs": [[5], [5] * (CONTEXT + 1)]}, "too_long", r"inputs\[1\]: 49 tokens, at most 48"),
        ({"inputs": [[5], [len(PIECES)]]}, "bad_job", r"inputs\[1\]: ids"),
        ({"inputs": [[-1]]}, "bad_job", r"inputs\[0\]: ids"),
        ({"inputs": [[5] * (INPUTS_TOKENS_MAX // 100)] * 101}, "too_long", "inputs: over 300000"),
    ],
)
async def test_what_cannot_be_embedded_is_refused_by_field(
    engine: EmbedEngine, changes: dict[str, Any], code: str, message: str
) -> None:
    with pytest.raises(JobRefused, match=message) as caught:
        engine.submit(msgspec.structs.replace(make_embed_job(1, [[5]]), **changes))
    assert caught.value.code == code
