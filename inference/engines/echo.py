"""An engine without a model, for benchmarks of everything around it: it repeats the prompt.

Choice c of a request gets the prompt's tokens in a circle, `max_tokens` of them. Usage, timing,
cancel and deadline are as in a real engine; sampling, stop tokens and the KV cache are not there.
"""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from inference.compact.config.fields import Fields
from inference.contract import frames
from inference.contract.capabilities import capabilities
from inference.engines.admission import check_job, check_room
from inference.engines.base import NO_STEP, EngineEvents, EngineFacts, clock_us

CAPABILITIES = capabilities("cancel deadline ignore_eos min_tokens n stream tokens")


@dataclass(frozen=True, kw_only=True)
class EchoOptions:
    """`tokens_per_step` 0 answers in one step; `tokens_per_s` 0 does not wait between steps."""

    name: str | None = None
    tokens_per_s: float = 0.0
    tokens_per_step: int = 0
    credits: int = 4096
    block_size: int = 32
    kv_blocks: int = 1 << 20

    def __post_init__(self) -> None:
        if self.tokens_per_s < 0 or self.tokens_per_step < 0:
            raise ValueError("tokens_per_s and tokens_per_step: must not be negative")


@dataclass(slots=True)
class _Stream:
    job: frames.Job
    received_us: int
    sent: int = 0
    started_us: int | None = None


class EchoEngine:
    """Serves the tokenizer of a checkpoint folder, without its weights; raises `ModelError`."""

    def __init__(self, model_path: Path, options: EchoOptions | None = None) -> None:
        self._options = options or EchoOptions()
        config = Fields(model_path / "config.json")
        self.facts = EngineFacts(
            engine="echo",
            device="none",
            dtype="none",
            model=self._options.name or model_path.resolve().name,
            context_window=config.integer("max_position_embeddings"),
            vocab_size=config.integer("vocab_size"),
            block_size=self._options.block_size,
            kv_blocks=self._options.kv_blocks,
            credits=self._options.credits,
            capabilities=CAPABILITIES,
        )
        self._streams: dict[bytes, _Stream] = {}
        self._cancelled: list[_Stream] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._events: EngineEvents | None = None

    async def start(self, events: EngineEvents) -> None:
        self._events = events
        self._task = asyncio.create_task(self._serve(events))

    def submit(self, job: frames.Job) -> None:
        check_job(job, self.facts)
        check_room(job.request, self._streams, self.facts)
        self._streams[job.request] = _Stream(job, clock_us())
        self._wake.set()

    def cancel(self, request: bytes) -> None:
        stream = self._streams.pop(request, None)
        if stream is not None:
            self._cancelled.append(stream)
            self._wake.set()

    def kv_snapshot(self) -> frames.KvEvents:
        return frames.KvEvents(seq=0, stored=b"", removed=b"", snapshot=True)

    def computing(self) -> None:
        """Its steps take no time worth reporting."""

    async def close(self) -> None:
        if self._task is None or self._events is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        self._task = None
        for request in list(self._streams):
            self.cancel(request)
        self._events.on_step(self._step())

    async def _serve(self, events: EngineEvents) -> None:
        options = self._options
        wait_s = 0.0
        if options.tokens_per_s:
            wait_s = max(options.tokens_per_step, 1) / options.tokens_per_s
        due_s = time.monotonic()
        while True:
            if not self._streams and not self._cancelled:
                self._wake.clear()
                await self._wake.wait()
                due_s = time.monotonic()
            due_s += wait_s
            await asyncio.sleep(max(due_s - time.monotonic(), 0.0))
            events.on_step(self._step())

    def _step(self) -> frames.Step:
        now_us = clock_us()
        outputs: list[frames.Output] = []
        for stream in list(self._streams.values()):
            if now_us >= stream.received_us + stream.job.deadline_ms * 1000:
                self.cancel(stream.job.request)
            else:
                outputs += self._advance(stream, now_us)
        cancelled, self._cancelled = self._cancelled, []
        for stream in cancelled:
            outputs += _outputs(stream, [], "cancelled", now_us)
        load = {"running": len(self._streams), "kv_free_blocks": self.facts.kv_blocks}
        step_us = clock_us() - now_us
        return msgspec.structs.replace(NO_STEP, outputs=outputs, step_us=step_us, **load)

    def _advance(self, stream: _Stream, now_us: int) -> list[frames.Output]:
        prompt = stream.job.tokens
        room = self.facts.context_window - len(prompt)
        total = min(stream.job.sampling.max_tokens, room)
        paced = 1 if self._options.tokens_per_s else frames.OUTPUT_TOKENS_PER_FRAME_MAX
        until = min(total, stream.sent + (self._options.tokens_per_step or paced))
        tokens = [prompt[index % len(prompt)] for index in range(stream.sent, until)]
        stream.sent = until
        stream.started_us = stream.started_us or now_us
        finish = "length" if until == total else None
        if finish:
            del self._streams[stream.job.request]
        return _outputs(stream, tokens, finish, now_us)


def _outputs(
    stream: _Stream, tokens: list[int], finish: str | None, now_us: int
) -> list[frames.Output]:
    """The same for every choice; usage counts them all."""
    started_us = now_us if stream.started_us is None else stream.started_us
    choices = stream.job.sampling.n
    usage = frames.Usage(
        prompt_tokens=len(stream.job.tokens) if stream.sent else 0,
        cached_tokens=0,
        completion_tokens=stream.sent * choices,
    )
    timing = frames.Timing(
        queue_us=started_us - stream.received_us,
        prefill_us=0,
        decode_us=now_us - started_us,
        held_us=now_us - stream.received_us,
    )
    return [
        frames.Output(
            request=stream.job.request,
            choice=choice,
            tokens=tokens,
            usage=usage,
            timing=timing,
            finish=finish,
        )
        for choice in range(choices)
    ]
