"""Scripts of `tests/clients/node` with the official Node client, each a process of its own."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

from tests.support.fleet import MODEL
from tests.support.ports import KEY
from tests.support.serving import Serving

FOLDER = Path(__file__).parents[1] / "clients" / "node"
NODE_S_MAX = 120


async def run(script: str, serving: Serving, model: str = MODEL) -> Any:
    """What a script prints, from its JSON."""
    process = await asyncio.create_subprocess_exec(
        "node", script, f"{serving.under_test.url}/v1", KEY, model,
        cwd=FOLDER, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    async with asyncio.timeout(NODE_S_MAX):
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(out)
