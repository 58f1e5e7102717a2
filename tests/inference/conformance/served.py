"""A started engine with its events, and the jobs that the suite gives it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from inference.contract.capabilities import Capability
from inference.contract.frames import INPUTS_MAX, Job, Output, Sampling
from inference.engines.base import Engine
from tests.inference.conformance.subjects import Subject
from tests.inference.engines.sink import Sink
from tests.support.shipped import SHIPPED, long_prompt, no_end

DEADLINE_MS = 120_000


@dataclass
class Served:
    """One test's engine. Each test has a tenant of its own, so what others cached is not found."""

    subject: Subject
    engine: Engine
    sink: Sink = field(default_factory=Sink)
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    def job(self, prompt: int | Sequence[int] = 40, **wanted: Any) -> Job:
        """A greedy job that ends by length. Fields of the job and of its sampling by name."""
        fields = {
            name: wanted.pop(name, default)
            for name, default in (
                ("salt", self.salt), ("stop_tokens", []), ("deadline_ms", DEADLINE_MS),
            )
        }  # fmt: skip
        sampling = {"max_tokens": 8, "temperature": 0.0, "ignore_eos": True, **wanted}
        tokens = long_prompt(prompt) if isinstance(prompt, int) else list(prompt)
        return Job(
            request=secrets.token_bytes(16),
            model=SHIPPED.name,
            tokens=tokens,
            hashes=b"",
            sampling=Sampling(**sampling),
            **fields,
        )

    def any_job(self, *, endless: bool = False, **fields: Any) -> Job:
        """A job of the engine's own kind: brief, or one that will not end in the time of a test."""
        capabilities = self.subject.capabilities
        if Capability.TOKENS in capabilities:
            return self.job(20, max_tokens=300 if endless else 2, **fields)
        common = {"salt": self.salt, "stop_tokens": [], "deadline_ms": DEADLINE_MS, **fields}
        sampling = Sampling(max_tokens=0)
        inputs, body = [[5] * 20] * (INPUTS_MAX if endless else 1), b""
        if Capability.TEXT in capabilities:
            bias = {int(token): float(bias) for token, bias in no_end().items()}
            tokens = 1000 if endless else 2
            sampling = Sampling(max_tokens=tokens, temperature=0.0, logit_bias=bias)
            inputs, body = [], msgspec.json.encode({"prompt": "Once"})
        return Job(
            request=secrets.token_bytes(16),
            model=self.engine.facts.model,
            tokens=[],
            hashes=b"",
            sampling=sampling,
            inputs=inputs,
            request_json=body,
            **common,
        )

    def submit(self, *jobs: Job) -> None:
        """Give the engine jobs."""
        for job in jobs:
            self.engine.submit(job)

    async def run(self, job: Job) -> list[Output]:
        """Submit a job and wait for its end; all its outputs."""
        self.submit(job)
        return await self.finished(job)

    async def finished(self, job: Job) -> list[Output]:
        """All outputs of a job, once each of its choices has ended exactly once."""
        return await self.sink.finished(job.request, job.sampling.n)

    async def decoding(self, job: Job) -> None:
        """Until each choice has said something."""
        await self.sink.until(
            lambda: (
                {each.choice for each in self.sink.outputs[job.request] if each.tokens}
                == set(range(job.sampling.n))
            )
        )

    async def idle(self) -> None:
        """Until the engine reports that nothing runs and every block is free."""
        blocks = self.engine.facts.kv_blocks
        await self.sink.until(
            lambda: (
                bool(self.sink.steps)
                and not self.sink.steps[-1].running
                and self.sink.steps[-1].kv_free_blocks == blocks
            )
        )


def tokens_of(outputs: Sequence[Output], choice: int = 0) -> list[int]:
    """What a choice said."""
    return [token for each in outputs if each.choice == choice for token in each.tokens]
