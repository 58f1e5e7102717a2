"""vLLM's `AsyncLLM` behind the `Engine` protocol. The one file that touches vLLM's interface.

vLLM steps in its own process. Each of its steps ends in a call of our statistics logger, and
there every request's new tokens are collected, so that one engine step is one `Step`.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import secrets
import shutil
import tempfile
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.exceptions import VLLMServerError
from vllm.inputs.engine import tokens_input
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from inference.contract.capabilities import Capability
from inference.contract.frames import Job, KvEvents, Output, Step
from inference.contract.grammar import Grammar
from inference.contract.roofline import ComputePath
from inference.engines.admission import check_job, check_room
from inference.engines.base import Computing, EngineEvents, EngineFacts, clock_us
from inference.engines.remote.index import BlockIndex
from inference.engines.vllm.load import LoadLogger, PromptProgress
from inference.engines.vllm.options import CAPABILITIES, VllmOptions
from inference.engines.vllm.request import LiveRequest, paged
from inference.errors import JobRefused, ModelError

log = logging.getLogger(__name__)

CPU_SIZES = {"kv_cache_memory_bytes": 256 * 2**20, "block_size": 32}
# vLLM requires top_p above 0, where it means the same: only the likeliest token.
TOP_P_MIN = 1e-9
WARM_UP = "warm-up"
CLOSE_WAIT_S = 10.0
LOADING_POLL_S = 0.1
KV_RECONNECT_MS = 10
# Read by the process that vLLM starts. Nothing is reported to anyone, and block hashes come whole.
ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "0"}


class VllmEngine:
    """Serves one Hugging Face checkpoint folder with vLLM.

    Raises `ModelError` at construction for what vLLM refuses to configure, at `start` for what it
    cannot load. `facts.kv_blocks` is known after `start`.
    """

    def __init__(self, model_path: Path, options: VllmOptions | None = None) -> None:
        self._options = options or VllmOptions()
        _check_names(self._options.args)
        # For the socket that cache events come through; made at the start, so that an engine which
        # never starts leaves nothing.
        self._folder = Path(tempfile.gettempdir()) / f"sluice-vllm-{secrets.token_hex(8)}"
        self._endpoint = f"ipc://{self._folder}/kv"
        try:
            self._config = _configure(model_path, self._options, self._endpoint)
        except (ValueError, OSError, RuntimeError, NotImplementedError) as error:
            raise ModelError(f"{model_path}: vLLM refuses it: {error}") from error
        self.facts = _facts_of(model_path, self._options, self._config)
        self._index = BlockIndex(self.facts.block_size)
        self._live: dict[bytes, LiveRequest] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._load = LoadLogger(self._on_load)
        self._progress = PromptProgress()
        self._engine: AsyncLLM | None = None
        self._loading: asyncio.Task[AsyncLLM] | None = None
        self._events: EngineEvents | None = None
        self._closing = False

    async def start(self, events: EngineEvents) -> None:
        """Load in vLLM's own process; raises `ModelError`."""
        self._events = events
        os.environ.update(ENVIRONMENT)
        # Only this user can enter it.
        self._folder.mkdir(mode=0o700)
        if Capability.KV_EVENTS in self.facts.capabilities:
            self._keep(self._follow_cache(events))
        try:
            make, loggers = AsyncLLM.from_vllm_config, [self._load.made_by]
            loading = asyncio.to_thread(make, self._config, stat_loggers=loggers)
            self._loading = asyncio.create_task(loading)
            # Not cut off when the node is stopped: `close` ends it, or what it has made.
            self._engine = await asyncio.shield(self._loading)
            # One block is vLLM's own null block.
            blocks = self._config.cache_config.num_gpu_blocks - 1
            self.facts = msgspec.structs.replace(self.facts, kv_blocks=blocks)
            await self._warm_up(self._engine)
        except (ValueError, OSError, RuntimeError, VLLMServerError) as error:
            raise ModelError(f"{self._config.model_config.model}: vLLM: {error}") from error

    def submit(self, job: Job) -> None:
        check_job(job, self.facts)
        check_room(job.request, self._live, self.facts)
        try:
            parameters = _parameters(job, self.facts)
        except ValueError as error:
            raise JobRefused("bad_job", f"sampling: {error}") from error
        if not self._live:
            self._load.begin()
        self._index.touch(job.hashes)
        live = self._live[job.request] = LiveRequest(job, clock_us())
        loop = asyncio.get_running_loop()
        live.deadline = loop.call_later(job.deadline_ms / 1000, self.cancel, job.request)
        self._keep(self._add(live, parameters))

    def cancel(self, request: bytes) -> None:
        live = self._live.get(request)
        if live is None or live.cancelled:
            return
        live.cancelled = True
        if live.collector is not None:
            self._keep(self._abort(live))

    def kv_snapshot(self) -> KvEvents:
        """The cache as of the last `on_kv`, so that the next one follows without a gap."""
        return self._index.snapshot()

    def computing(self) -> Computing | None:
        return self._load.computing(self._live.values()) if self.facts.reports_steps else None

    async def close(self) -> None:
        """End what runs as cancelled, stop vLLM's process and remove the socket's folder."""
        self._closing = True
        for request in list(self._live):
            self.cancel(request)
        ending = [live.ended.wait() for live in self._live.values()]
        if self._engine is not None and not self._engine.errored:
            try:
                await asyncio.wait_for(asyncio.gather(*ending), CLOSE_WAIT_S)
            except TimeoutError:
                log.warning("vLLM did not end its requests count=%d", len(self._live))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._loading is not None:
            self._engine = await _stop_loading(self._loading)
        if self._engine is not None:
            await asyncio.to_thread(self._engine.shutdown)
            self._engine = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _on_load(self, load: Step, free: float | None) -> None:
        """vLLM has finished a step; this share of its blocks is free."""
        if free is not None:
            blocks = round(self.facts.kv_blocks * free)
            load = self._load.step = msgspec.structs.replace(
                load,
                kv_free_blocks=blocks,
                kv_cached_blocks=self._index.idle(
                    blocks, in_use=self.facts.kv_blocks - blocks, running=load.running
                ),
                oldest_block_s=self._index.oldest_s(),
            )
        self._progress.prefilled(load.prefilled_tokens)
        self._publish(load)

    def _publish(self, load: Step) -> None:
        if self._events is None:
            return
        outputs: list[Output] = []
        for live in list(self._live.values()):
            waited = not live.started
            outputs += live.collect(clock_us())
            if waited and live.started:
                self._progress.waits_no_more(live.uncached_tokens)
            if not live.choices_open:
                self._forget(live)
        # How much of a waiting prompt is cached is not known, so all of it counts.
        waiting = sum(each.uncached_tokens for each in self._live.values() if not each.started)
        left = self._progress.left(waiting)
        for step in paged(msgspec.structs.replace(load, outputs=outputs, waiting_tokens=left)):
            self._events.on_step(step)

    async def _add(self, live: LiveRequest, parameters: SamplingParams) -> None:
        assert self._engine is not None and self._events is not None
        prompt = tokens_input(live.job.tokens, cache_salt=live.job.salt.hex() or None)
        identity = live.job.request.hex()
        try:
            # vLLM serves low numbers first, we high ones.
            live.collector = await self._engine.add_request(
                identity, prompt, parameters, priority=-live.job.priority
            )
        except EngineDeadError as error:
            self._die(error)
        except Exception as error:  # the edge of vLLM: what it refuses must not hang
            log.warning("vLLM refused request=%s error=%s", identity, error)
            self._forget(live)
            code = "bad_request" if live.job.sampling.grammar is None else "bad_grammar"
            self._events.on_refused(live.job.request, JobRefused(code, str(error)))
        else:
            if live.has_output:
                # It came in the meantime and would wait for the next step, which may not come.
                self._publish(self._load.between_steps())
            if live.cancelled:
                await self._abort(live)

    async def _abort(self, live: LiveRequest) -> None:
        """Abort a request; it ends when vLLM's process has freed its blocks."""
        if self._engine is None or live.collector is None or live.ended.is_set():
            return
        live.held_back = True
        try:
            await self._engine.abort(live.collector.request_id, internal=True)
            # Calls are answered in order, between steps: with this answer the blocks are free.
            await self._engine.is_sleeping()
        except EngineDeadError as error:
            self._die(error)
            return
        live.held_back = False
        self._publish(self._load.between_steps())

    async def _follow_cache(self, events: EngineEvents) -> None:
        """Read vLLM's cache events as long as possible. It listens before vLLM publishes."""
        with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as socket:
            socket.setsockopt(zmq.RECONNECT_IVL, KV_RECONNECT_MS)
            socket.setsockopt(zmq.SUBSCRIBE, b"")
            socket.connect(self._endpoint)
            while not self._index.lost:
                changed = self._index.take(await socket.recv_multipart())
                if changed is not None:
                    events.on_kv(changed)
        self.facts = msgspec.structs.replace(
            self.facts, capabilities=tuple({*self.facts.capabilities} - {Capability.KV_EVENTS})
        )

    async def _warm_up(self, engine: AsyncLLM) -> None:
        """One short answer, so that the first request does not pay for lazy set-up.

        With it vLLM's task that reads outputs begins; it ends only when vLLM's process is gone.
        """
        parameters = SamplingParams(max_tokens=2, logprobs=1, ignore_eos=True, detokenize=False)
        prompt = tokens_input([0], cache_salt=WARM_UP)
        async for _ in engine.generate(prompt, parameters, WARM_UP):
            pass
        if engine.output_handler is not None:
            engine.output_handler.add_done_callback(lambda _: self._die(EngineDeadError()))

    def _die(self, error: BaseException) -> None:
        if self._events is not None and not self._closing:
            self._closing = True
            self._events.on_death(error)

    def _forget(self, live: LiveRequest) -> None:
        live.end()
        if not live.started:
            self._progress.waits_no_more(live.uncached_tokens)
        self._index.touch(live.job.hashes)
        self._live.pop(live.job.request, None)

    def _keep(self, work: Any) -> None:
        """Run a task that is never awaited; an exception in it is the engine's death."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._let_go)

    def _let_go(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._die(error)


async def _stop_loading(loading: asyncio.Task[AsyncLLM]) -> AsyncLLM | None:
    """End a load by ending the process that it waits for; returns the engine if it was done."""
    end_s = time.monotonic() + CLOSE_WAIT_S
    while not loading.done():
        # The thread cannot be stopped, but it ends when its process is gone. It may start
        # one yet, so this is repeated.
        for child in multiprocessing.active_children():
            child.kill()
        if time.monotonic() > end_s:
            log.warning("vLLM did not stop loading within %.0f s", CLOSE_WAIT_S)
            return None
        await asyncio.wait([loading], timeout=LOADING_POLL_S)
    return loading.result() if loading.exception() is None else None


def _check_names(args: dict[str, Any]) -> None:
    known = {each.name for each in fields(AsyncEngineArgs)}
    for name in args:
        if name not in known:
            raise ModelError(f"--vllm-args: vLLM has no engine argument {name!r}")


def _configure(path: Path, options: VllmOptions, endpoint: str) -> Any:
    """vLLM's configuration; raises what vLLM raises."""
    if options.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    chosen: dict[str, Any] = {
        "model": str(path),
        "served_model_name": [options.name or path.resolve().name],
        "dtype": options.dtype,
        "max_num_seqs": options.running_max,
        "scheduling_policy": "priority",
        "disable_log_stats": True,
        # How many prompt tokens a step computes; it is reported, and nothing is logged.
        "enable_logging_iteration_details": True,
        # Its grammars are those of the contract, and it needs no triton.
        "structured_outputs_config": {"backend": "guidance", "disable_any_whitespace": True},
        "kv_events_config": {
            "enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint,
        },
    }  # fmt: skip
    sizes = {"kv_cache_memory_bytes": options.kv_bytes, "block_size": options.block_size}
    if current_platform.is_cpu():
        sizes = {name: size or CPU_SIZES[name] for name, size in sizes.items()}
        # A seed kills the CPU engine when a prompt is prefilled in parts (vLLM 0.32.0).
        chosen["enable_chunked_prefill"] = False
    chosen |= {name: size for name, size in sizes.items() if size is not None}
    return AsyncEngineArgs(**{**chosen, **options.args}).create_engine_config()


def _facts_of(path: Path, options: VllmOptions, config: Any) -> EngineFacts:
    capabilities = set(CAPABILITIES)
    if config.cache_config.enable_prefix_caching:
        capabilities |= {Capability.KV_EVENTS, Capability.PREFIX_CACHE}
    if config.speculative_config is not None:
        capabilities.add(Capability.SPECULATION)
    return EngineFacts(
        engine="vllm",
        device=config.device_config.device_type,
        dtype=str(config.model_config.dtype).removeprefix("torch."),
        model=options.name or path.resolve().name,
        context_window=config.model_config.max_model_len,
        vocab_size=config.model_config.get_vocab_size(),
        block_size=config.cache_config.block_size,
        kv_blocks=config.cache_config.num_gpu_blocks or 0,
        credits=options.running_max,
        capabilities=tuple(sorted(capabilities)),
        path=ComputePath(kernels="vllm"),
    )


def _parameters(job: Job, facts: EngineFacts) -> SamplingParams:
    """In vLLM's terms; raises ValueError for what it refuses."""
    sampling = job.sampling
    most = max(1, min(sampling.max_tokens, facts.context_window - len(job.tokens)))
    top_p = max(sampling.top_p, TOP_P_MIN)
    shape = {"temperature": sampling.temperature, "top_p": top_p, "top_k": sampling.top_k}
    if sampling.temperature == 0.0 and sampling.n > 1:
        # vLLM has no several greedy choices, but the likeliest token of one is the same thing.
        shape = {"temperature": 1.0, "top_p": 1.0, "top_k": 1}
    return SamplingParams(
        n=sampling.n,
        **shape,
        min_p=sampling.min_p,
        frequency_penalty=sampling.frequency_penalty,
        presence_penalty=sampling.presence_penalty,
        repetition_penalty=sampling.repetition_penalty,
        min_tokens=min(sampling.min_tokens, most),
        prompt_logprobs=sampling.prompt_logprobs,
        seed=sampling.seed,
        logprobs=sampling.logprobs,
        logit_bias=sampling.logit_bias or None,
        ignore_eos=sampling.ignore_eos,
        stop_token_ids=job.stop_tokens,
        max_tokens=most,
        structured_outputs=_grammar(sampling.grammar),
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


def _grammar(grammar: Grammar | None) -> StructuredOutputsParams | None:
    if grammar is None:
        return None
    if grammar.kind == "json_object":
        return StructuredOutputsParams(json_object=True)
    field = {"json_schema": "json", "regex": "regex", "lark": "grammar"}[grammar.kind]
    return StructuredOutputsParams(**{field: grammar.source})
