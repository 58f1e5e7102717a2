"""The compact engine behind the `Engine` protocol: one thread steps, the event loop only posts.

Jobs and cancels go into a queue that the thread empties before each step; each step's outputs
come back in one callback. A request past its `deadline_ms` ends with finish `cancelled`. One that
has a grammar reaches the thread once that is compiled; no other request waits for it.
"""

import asyncio
import logging
import threading
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import msgspec

from inference.compact.config.shape import ModelShape, read_shape
from inference.compact.config.vocabulary import check_vocabulary
from inference.compact.grammar.compiler import CompiledGrammar, GrammarCompiler
from inference.compact.load.placement import Placement, choose_placement, layer_token_bytes
from inference.compact.options import CompactOptions
from inference.compact.run.ahead import AheadLoop
from inference.compact.run.ceilings import measure_ceilings
from inference.compact.run.loop import StepLoop
from inference.compact.run.path import compute_path, stored_bytes
from inference.compact.run.roofline import Roofline, Work
from inference.compact.run.runner import LoadedModel, Runner
from inference.compact.schedule.blocks import BlockPool
from inference.compact.schedule.outputs import StopRules
from inference.compact.schedule.scheduler import Scheduler
from inference.contract.blocks import split_hashes
from inference.contract.capabilities import Capability, capabilities
from inference.contract.frames import Job, KvEvents, Sampling, Step
from inference.contract.grammar import Grammar
from inference.contract.roofline import Ceilings
from inference.engines.admission import check_job, check_room
from inference.engines.base import Computing, EngineEvents, EngineFacts, clock_us, thread_cpu_s
from inference.errors import JobRefused

CAPABILITIES = capabilities(
    "cancel deadline frequency_penalty ignore_eos kv_events logit_bias logprobs min_p min_tokens n"
    " prefix_cache presence_penalty priority prompt_logprobs repetition_penalty salt seed"
    " stop_tokens stream temperature tokens top_k top_p"
)
CLOSE_WAIT_S = 30.0
WARM_UP_REQUEST = b"\0" * 16
WARM_UP_TOKENS = 2
WARM_UP_DEADLINE_MS = 600_000
MICROSECONDS_PER_S = 1_000_000

log = logging.getLogger(__name__)


class Arrival(NamedTuple):
    """A job with the time it came in; `cancelled` when that happened before the thread saw it."""

    job: Job
    received_us: int
    grammar: CompiledGrammar | None = None
    cancelled: bool = False


# A job, the id of a request to cancel, or None to close.
Message = Arrival | bytes | None


class CompactEngine:
    """Serves one Hugging Face checkpoint folder on CPU or CUDA.

    Raises `ModelError` at construction for a bad configuration, at `start` for bad weights.
    """

    def __init__(self, model_path: Path, options: CompactOptions | None = None) -> None:
        self._options = options or CompactOptions()
        self._path = model_path
        self._shape = read_shape(model_path)
        check_vocabulary(model_path, self._shape.vocab_size)
        self._placement = choose_placement(self._shape, self._options)
        self._grammars = _grammars_of(model_path, self._shape)
        self.facts = EngineFacts(
            engine="compact",
            device=self._placement.device,
            dtype=self._placement.dtype,
            model=self._options.name or model_path.resolve().name,
            context_window=self._shape.context_window,
            vocab_size=self._shape.vocab_size,
            block_size=self._options.block_size,
            kv_blocks=self._placement.kv_blocks,
            credits=self._options.running_max,
            capabilities=(
                *CAPABILITIES,
                *((Capability.GRAMMAR,) if bool(self._grammars) else ()),
                *((Capability.SPECULATION,) if self._options.speculate != "off" else ()),
            ),
        )
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._unfinished: dict[bytes, int] = {}
        self._compiling: dict[bytes, asyncio.Task[CompiledGrammar]] = {}
        self._cached: dict[bytes, None] = {}
        self._kv_seq = 0
        self._thread: _StepThread | None = None

    async def start(self, events: EngineEvents) -> None:
        """Load and warm up in the engine's own thread; raises what loading raised."""
        self._thread = _StepThread(self, events, self._inbox)
        self._thread.start()
        await self._thread.ready

    def submit(self, job: Job) -> None:
        check_job(job, self.facts)
        check_room(job.request, self._unfinished, self.facts)
        self._unfinished[job.request] = job.sampling.n
        if self._grammars is not None and job.sampling.grammar is not None:
            self._compile(self._grammars, job, job.sampling.grammar)
        else:
            self._inbox.put(Arrival(job, clock_us()))

    def cancel(self, request: bytes) -> None:
        if request in self._compiling:
            self._compiling[request].cancel()
        elif request in self._unfinished:
            self._inbox.put(request)

    def kv_snapshot(self) -> KvEvents:
        """The cache as of the last `on_kv`, so that the next one follows without a gap."""
        stored = b"".join(self._cached)
        return KvEvents(seq=self._kv_seq, stored=stored, removed=b"", snapshot=True)

    def computing(self) -> Computing | None:
        if self._thread is None or not self.facts.reports_steps:
            return None
        return self._thread.computing()

    async def close(self) -> None:
        if self._grammars is not None:
            self._grammars.close()
        if self._thread is None:
            return
        for task in list(self._compiling.values()):
            task.cancel()
        if self._compiling:
            await asyncio.wait(self._compiling.values())
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join, CLOSE_WAIT_S)
        self._thread = None

    def _compile(self, grammars: GrammarCompiler, job: Job, grammar: Grammar) -> None:
        task = asyncio.create_task(grammars.compile(grammar, tenant=job.salt))
        self._compiling[job.request] = task
        task.add_done_callback(partial(self._compiled, job, clock_us()))

    def _compiled(self, job: Job, received_us: int, task: asyncio.Task[CompiledGrammar]) -> None:
        """The grammar was compiled, refused or cancelled."""
        del self._compiling[job.request]
        if task.cancelled():
            self._inbox.put(Arrival(job, received_us, cancelled=True))
        elif (error := task.exception()) is None:
            self._inbox.put(Arrival(job, received_us, task.result()))
        elif self._thread is not None:
            del self._unfinished[job.request]
            if isinstance(error, JobRefused):
                self._thread.events.on_refused(job.request, error)
            else:
                self._thread.events.on_death(error)

    def build(self) -> StepLoop:
        """Load the model and warm it up; runs in the engine's thread."""
        # Before the weights are in memory, where there is room for it.
        ceilings = self._measure()
        runner = self.load(self._path, self._shape, self._placement)
        path = compute_path(runner.model, self._placement)
        blocks = runner.placement.kv_blocks
        self.facts = msgspec.structs.replace(self.facts, path=path, kv_blocks=blocks)
        # With a pool of its own: the blocks that it fills cause no event and are not shared.
        _warm_up(self._step_loop(runner, None), self.facts)
        roofline = None if ceilings is None else Roofline(self._work(runner.model), ceilings)
        return self._step_loop(runner, roofline)

    def load(self, folder: Path, shape: ModelShape, placement: Placement) -> Runner:
        """The model in memory; runs in the engine's thread."""
        return Runner.load(folder, shape, placement)

    def _work(self, model: LoadedModel | None = None) -> Work:
        """Before there is a model as if its weights were not quantized."""
        stored = None if model is None else stored_bytes(model)
        placement = self._placement
        cached = layer_token_bytes(self._shape, placement.dtype, placement.kv_dtype)
        return Work(self._shape, placement.torch_dtype.itemsize, stored, cached)

    def _measure(self) -> Ceilings | None:
        """None for what is not counted: which experts a step reads."""
        placement = self._placement
        if self._shape.experts is not None:
            return None
        try:
            ceilings = measure_ceilings(placement.device, self._work().weight_bytes)
        except RuntimeError:
            # Out of memory, or products that the device does not have: it can serve all the same.
            log.warning("ceilings_not_measured", exc_info=True)
            return None
        self.facts = msgspec.structs.replace(self.facts, ceilings=ceilings)
        return ceilings

    def _step_loop(self, runner: Runner, roofline: Roofline | None) -> StepLoop:
        pool = BlockPool(self.facts.kv_blocks, self.facts.block_size)
        stop_rules = StopRules(self._shape.eos, self.facts.context_window)
        ahead = self._placement.device == "cuda" and self._options.overlap == "auto"
        make = AheadLoop if ahead or self._options.overlap == "on" else StepLoop
        return make(runner, Scheduler(pool, self._options), stop_rules, clock_us, roofline)

    def account(self, step: Step, kv: KvEvents | None) -> None:
        """Update requests and cached blocks after a step; runs on the event loop."""
        for output in step.outputs:
            if output.finish is not None:
                self._unfinished[output.request] -= 1
                if not self._unfinished[output.request]:
                    del self._unfinished[output.request]
        if kv is not None:
            self._kv_seq = kv.seq
            self._cached.update(dict.fromkeys(split_hashes(kv.stored)))
            for block_hash in split_hashes(kv.removed):
                del self._cached[block_hash]


class _StepThread(threading.Thread):
    """Steps while there is work, sleeps on the inbox while there is none."""

    def __init__(
        self, engine: CompactEngine, events: EngineEvents, inbox: SimpleQueue[Message]
    ) -> None:
        super().__init__(name="compact-engine", daemon=True)
        self.engine = engine
        self.events = events
        self.inbox = inbox
        self.event_loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self.event_loop.create_future()
        self.step_loop: StepLoop | None = None

    def run(self) -> None:
        try:
            self.step_loop = self.engine.build()
            self.event_loop.call_soon_threadsafe(self._loaded)
            self._serve(self.step_loop)
        except Exception as error:  # The edge of the engine: the node must learn of any failure.
            self.event_loop.call_soon_threadsafe(self._died, error)

    def computing(self) -> Computing | None:
        """The step in progress, as another thread sees it."""
        under_way = None if self.step_loop is None else self.step_loop.under_way
        if under_way is None or self.native_id is None:
            return None
        began_us, chunks = under_way
        requests = {chunk.sequence.request.job.request for chunk in chunks}
        cpu_s = partial(thread_cpu_s, self.native_id)
        return Computing(list(requests), began_us / MICROSECONDS_PER_S, cpu_s)

    def _serve(self, step_loop: StepLoop) -> None:
        while self._take_messages(step_loop):
            if step_loop.has_work:
                self._post(*step_loop.step())
        self._post(step_loop.end_all("cancelled"), None)

    def _take_messages(self, step_loop: StepLoop) -> bool:
        """Act on all messages there are, waiting for one when idle; False once closed."""
        while not (step_loop.has_work and self.inbox.empty()):
            message = self.inbox.get()
            if message is None:
                return False
            if isinstance(message, bytes):
                step_loop.end(message, "cancelled")
                continue
            step_loop.accept(message.job, message.received_us, message.grammar)
            if message.cancelled:
                step_loop.end(message.job.request, "cancelled")
        return True

    def _post(self, step: Step, kv: KvEvents | None) -> None:
        self.event_loop.call_soon_threadsafe(self._deliver, step, kv)

    def _deliver(self, step: Step, kv: KvEvents | None) -> None:
        self.engine.account(step, kv)
        if kv is not None:
            self.events.on_kv(kv)
        self.events.on_step(step)

    def _loaded(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)

    def _died(self, error: Exception) -> None:
        if self.ready.done():
            self.events.on_death(error)
        else:
            self.ready.set_exception(error)


def _grammars_of(path: Path, shape: ModelShape) -> GrammarCompiler | None:
    """None, said in the log, where no grammar can be followed; the engine then declares none."""
    tokenizer = path / "tokenizer.json"
    if not tokenizer.exists() or not shape.eos:
        log.warning("no grammars: %s has no tokenizer.json or no end token", path)
        return None
    try:
        return GrammarCompiler(tokenizer, vocab_size=shape.vocab_size, eos=shape.eos)
    except ValueError as error:
        log.warning("no grammars: %s: %s", tokenizer, error)
        return None


def _warm_up(step_loop: StepLoop, facts: EngineFacts) -> None:
    """One prefill and one decode, so that the first request does not pay for lazy set-up."""
    job = Job(
        request=WARM_UP_REQUEST,
        model=facts.model,
        tokens=[0],
        salt=WARM_UP_REQUEST,
        hashes=b"",
        sampling=Sampling(max_tokens=WARM_UP_TOKENS, temperature=0.0, ignore_eos=True),
        stop_tokens=[],
        deadline_ms=WARM_UP_DEADLINE_MS,
    )
    step_loop.accept(job, clock_us())
    while step_loop.has_work:
        step_loop.step()
