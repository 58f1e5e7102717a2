"""Two engines that share nothing but the checkpoint: greedy, in float32, they say the same."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tokenizers import Tokenizer

from inference.compact.options import CompactOptions
from inference.contract.capabilities import Capability
from inference.engines.compact import CompactEngine
from tests.inference.conformance.served import Served, tokens_of
from tests.inference.conformance.subjects import declared
from tests.support.shipped import SHIPPED

TEXTS = (
    "The capital of France is",
    "<|bos|><|user|>What is the difference between a process and a thread?<|end|><|assistant|>",
    "def fibonacci(n):",
    "1 2 3 4 5 6 7 8",
)


@pytest.mark.parametrize("subject", declared(Capability.TEXT), ids=str)
@pytest.mark.parametrize("text", TEXTS)
async def test_vllm_and_compact(served: Served, folder: Path, text: str) -> None:
    tokenizer = Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))
    prompt = tokenizer.encode(text).ids
    options = CompactOptions(
        dtype="float32", device="cpu", kernels="torch", kv_blocks=20, threads=1
    )
    own = Served(served.subject, CompactEngine(folder, options))
    await own.engine.start(own.sink)
    job = own.job(prompt, max_tokens=48)
    try:
        ours = tokens_of(await own.run(job))
    finally:
        await own.engine.close()
    asked = msgspec.json.encode({"prompt": prompt})
    theirs = msgspec.structs.replace(job, tokens=[], request_json=asked)
    said = "".join(output.text or "" for output in await served.run(theirs))
    assert said == tokenizer.decode(ours)
