"""Starting an engine, which may take minutes and must not look dead until then."""

import asyncio
import logging
import time

from inference.engines.base import Engine, EngineEvents
from inference.node.options import LOADING_LOG_S

log = logging.getLogger(__name__)


async def start_engine(engine: Engine, events: EngineEvents) -> None:
    """Start an engine, saying at intervals that it still loads; raises `ModelError`."""
    began_s = time.monotonic()

    async def say() -> None:
        while True:
            await asyncio.sleep(LOADING_LOG_S)
            elapsed_s = time.monotonic() - began_s
            log.info("loading model=%s elapsed_s=%.0f", engine.facts.model, elapsed_s)

    reporting = asyncio.create_task(say())
    try:
        await engine.start(events)
    finally:
        reporting.cancel()
