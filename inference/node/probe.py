"""One real token through the engine before the node offers itself to anyone."""

from __future__ import annotations

import asyncio
import secrets
import time

from inference.contract.frames import REQUEST_ID_BYTES, Job, Sampling, Step
from inference.engines.base import Engine, JobRefused, ModelError
from inference.node.options import PROBE_TIMEOUT_S

MILLISECONDS_PER_S = 1000


class Probe:
    """A job of one token whose outputs are read from the engine's steps."""

    def __init__(self, model: str) -> None:
        self._job = Job(
            request=secrets.token_bytes(REQUEST_ID_BYTES),
            model=model,
            tokens=[0],
            salt=b"probe",
            hashes=b"",
            sampling=Sampling(max_tokens=1, temperature=0.0, ignore_eos=True),
            stop_tokens=[],
            deadline_ms=int(PROBE_TIMEOUT_S * MILLISECONDS_PER_S),
        )
        self._tokens = 0
        self._finish: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_step(self, step: Step) -> None:
        """Watch for our own outputs."""
        for output in step.outputs:
            if output.request != self._job.request:
                continue
            self._tokens += len(output.tokens)
            if output.finish is not None and not self._finish.done():
                self._finish.set_result(output.finish)

    async def run(self, engine: Engine) -> float:
        """Seconds until the token came; raises `ModelError` when none did."""
        began_s = time.monotonic()
        try:
            engine.submit(self._job)
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                finish = await self._finish
        except JobRefused as error:
            raise ModelError(f"probe: the engine refused one token: {error}") from error
        except TimeoutError as error:
            raise ModelError(f"probe: no token within {PROBE_TIMEOUT_S:.0f} s") from error
        if not self._tokens:
            raise ModelError(f"probe: the engine ended with {finish!r} and no token")
        return time.monotonic() - began_s
