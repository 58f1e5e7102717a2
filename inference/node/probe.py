"""One real token through the engine: before the node offers itself, and again when it was idle.

An engine that embeds makes one vector instead.
"""

import asyncio
import secrets
import time

from inference.contract.capabilities import Capability
from inference.contract.frames import REQUEST_ID_BYTES, Job, Sampling, Step
from inference.engines.base import Engine, EngineFacts
from inference.errors import JobRefused, ModelError
from inference.node.options import PROBE_TIMEOUT_S

MILLISECONDS_PER_S = 1000
# For engines that take text; the shortest prompt that every chat model takes.
TEXT_PROMPT = b'{"messages":[{"role":"user","content":"1"}]}'
ENDS = frozenset({"stop", "length"})


class Probe:
    """A job of one token whose outputs are read from the engine's steps."""

    def __init__(self, facts: EngineFacts) -> None:
        takes_text = Capability.TEXT in facts.capabilities
        embeds = Capability.EMBEDDINGS in facts.capabilities
        # A server that loads its model first has as long as for any other answer.
        self._timeout_s = max(PROBE_TIMEOUT_S, facts.silence_s)
        self._job = Job(
            request=secrets.token_bytes(REQUEST_ID_BYTES),
            model=facts.model,
            tokens=[] if takes_text or embeds else [0],
            salt=b"probe",
            hashes=b"",
            sampling=Sampling(max_tokens=1, temperature=0.0, ignore_eos=not takes_text),
            stop_tokens=[],
            deadline_ms=int(self._timeout_s * MILLISECONDS_PER_S),
            request_json=TEXT_PROMPT if takes_text else b"",
            inputs=[[0]] if embeds else [],
        )
        self._tokens = 0
        self._finish: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_step(self, step: Step) -> None:
        for output in step.outputs:
            if output.request != self._job.request:
                continue
            # A server that thinks before it speaks counts a token and shows none.
            self._tokens = max(self._tokens + output.delivered, output.usage.completion_tokens)
            if output.finish is not None and not self._finish.done():
                self._finish.set_result(output.finish)

    def on_refused(self, request: bytes, refused: JobRefused) -> bool:
        """Whether the refused job was the probe's."""
        if request != self._job.request:
            return False
        self.fail(refused)
        return True

    def fail(self, error: BaseException) -> None:
        """The engine is dead, or does not take the job: no token will come."""
        if not self._finish.done():
            self._finish.set_exception(ModelError(f"probe: {error}"))

    async def run(self, engine: Engine) -> float:
        """Seconds until the token came; raises `ModelError` when none did."""
        began_s = time.monotonic()
        try:
            engine.submit(self._job)
            async with asyncio.timeout(self._timeout_s):
                finish = await self._finish
        except JobRefused as error:
            raise ModelError(f"probe: the engine refused one token: {error}") from error
        except TimeoutError as error:
            engine.cancel(self._job.request)
            raise ModelError(f"probe: no token within {self._timeout_s:.0f} s") from error
        if not self._tokens or finish not in ENDS:
            raise ModelError(f"probe: the engine ended with {finish!r} and {self._tokens} tokens")
        return time.monotonic() - began_s
