"""P10 with a real model that sees, of random weights, behind a server in a process of its own."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.pictures import data_url, image_file, image_part, seeing
from tests.support.remote import remote_node
from tests.support.serving import Serving
from tests.support.shipped import SHIPPED
from tests.support.vllm_server import (
    ENVIRONMENT,
    LEASH,
    START_S_MAX,
    end_group,
    start_group,
    vllm_python,
)
from tests.support.waiting import until

SCRIPT = Path(__file__).parents[1] / "support" / "tiny_vision.py"
# (56 / 14)² patches of an image.
IMAGE_TOKENS = 16


@pytest.fixture
async def vision_url(tmp_path: Path) -> AsyncIterator[str]:
    """The server; it takes a minute or two to load torch."""
    log = tmp_path / "vision.log"
    argv = [*LEASH, vllm_python(), "-W", "ignore", str(SCRIPT), str(SHIPPED), str(tmp_path / "vl")]
    process = start_group(argv, {**os.environ, **ENVIRONMENT}, log)

    def port() -> list[str]:
        assert process.poll() is None, log.read_text()[-4000:]
        return re.findall(r"^(\d+)$", log.read_text(), re.MULTILINE)

    try:
        await until(port, within_s=START_S_MAX)
        yield f"http://127.0.0.1:{port()[0]}"
    finally:
        end_group(process)


async def test_a_real_model_answers_by_what_it_sees(bare: Serving, vision_url: str) -> None:
    bare.under_test.keys.current = seeing(
        bare.under_test.keys.current, image_patch=14, image_tokens_max=IMAGE_TOKENS
    )
    said = []
    async with remote_node(bare.under_test, vision_url, upstream_model="vl"):
        for color in ("red", "blue", "red"):
            part = image_part(data_url(image_file((300, 300), color=color)))
            messages = [{"role": "user", "content": [{"type": "text", "text": "Hm?"}, part]}]
            body = (await bare.chat(messages=messages, max_tokens=24)).json()
            said.append(body["choices"][0]["message"]["content"])
            used = body["usage"]
            assert used["completion_tokens"] == 24
        plain = (await bare.chat(messages=[{"role": "user", "content": "Hm?"}])).json()
        # An image is so many tokens, and the charge is for what the model has counted.
        assert used["prompt_tokens"] - plain["usage"]["prompt_tokens"] == IMAGE_TOKENS
        counted = [each.counts.uncached for each in bare.under_test.ledger.settled.values()]
        assert counted[-2] == used["prompt_tokens"]
        await bare.under_test.at_rest()
    assert said[0] == said[2]
    assert said[0] != said[1]
