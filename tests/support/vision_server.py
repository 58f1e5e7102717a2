"""The model that sees of `tiny_vision`, behind a server in a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.shipped import SHIPPED
from tests.support.vllm_server import (
    ENVIRONMENT,
    LEASH,
    START_S_MAX,
    end_group,
    start_group,
    vllm_python,
)
from tests.support.waiting import wait_for

SCRIPT = Path(__file__).with_name("tiny_vision.py")
NAME = "vl"
# Pixels of a patch, a side, and (56 / 14)² patches of an image.
PATCH, IMAGE_TOKENS = 14, 16


@contextlib.contextmanager
def vision_server(folder: Path) -> Iterator[str]:
    """Its URL, until the block ends; it takes a minute or two to load torch."""
    log = folder / "vision.log"
    argv = [*LEASH, vllm_python(), "-W", "ignore", str(SCRIPT), str(SHIPPED), str(folder / NAME)]
    process = start_group(argv, {**os.environ, **ENVIRONMENT}, log)

    def port() -> list[str]:
        assert process.poll() is None, log.read_text()[-4000:]
        return re.findall(r"^(\d+)$", log.read_text(), re.MULTILINE)

    try:
        wait_for(port, "port of the model that sees", START_S_MAX)
        yield f"http://127.0.0.1:{port()[0]}"
    finally:
        end_group(process)
