"""Any OpenAI-compatible server as an engine: messages out, text back, its own counts.

It holds no model. A job is one streamed request; cancelling it closes that
request's connection, which is how such servers are stopped.
"""

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from tokenizers import Tokenizer

from inference.contract.assets import TOKENIZER_FILE
from inference.contract.capabilities import Capability
from inference.contract.frames import Job, KvEvents, Output, Processing, Step
from inference.engines.admission import check_room, check_text_job
from inference.engines.base import NO_STEP, EngineEvents, EngineFacts, clock_us
from inference.engines.remote.errors import UNAUTHORIZED, ServerRefused, error_in_stream
from inference.engines.remote.events import UpstreamBroken, read_chunk, read_handed_over
from inference.engines.remote.job import RemoteJob, request_of
from inference.engines.remote.kinds import KINDS, STANDARD, ServerKind, check_version
from inference.engines.remote.messages import MessagesReader
from inference.engines.remote.ranks import ServerCache
from inference.engines.remote.server import KEY_VARIABLE, KV_ROLES, RemoteOptions, Server
from inference.engines.remote.tokens import ServerTokens
from inference.errors import JobRefused, ModelError

# While jobs run, gateways get a report this often, whatever the server does.
HEARTBEAT_S = 0.5
# A frame holds far more; outputs beyond this go into a step of their own.
STEP_CHARS_MAX = 512 * 1024
MILLISECONDS_PER_S = 1000
# Tokens, where the server does not say by how many its cache is counted.
BLOCK_SIZE = 16

log = logging.getLogger(__name__)


class RemoteEngine:
    """One model of one server. Raises `ModelError` at `start` when the server does not serve it.

    The window and salts in its `facts` are known then, since the server reports them. `folder` has
    the model's tokenizer, where gateways are to know it.
    """

    def __init__(self, options: RemoteOptions, folder: Path | None = None) -> None:
        self._options = options
        self.facts = EngineFacts(
            engine="remote",
            device="remote",
            dtype="remote",
            model=options.name,
            context_window=options.context_window or 1,
            block_size=BLOCK_SIZE,
            credits=options.credits,
            capabilities=STANDARD,
            vocab_size=_vocab_size(folder) if folder else 0,
            silence_s=max(options.first_byte_timeout_s, options.idle_timeout_s),
        )
        self._kind = ServerKind()
        self._server: Server | None = None
        self._cache: ServerCache | None = None
        self._tokens: ServerTokens | None = None
        self._events: EngineEvents | None = None
        self._running: dict[bytes, RemoteJob] = {}
        self._tasks: dict[bytes, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._outputs: list[Output] = []

    async def start(self, events: EngineEvents) -> None:
        """Ask the server what it serves; raises `ModelError`."""
        self._events = events
        server = self._connect()
        listed = await server.find_model()
        check_version(server.kind, server.version)
        window = self._options.context_window or listed.context_window
        if window is None:
            raise ModelError("--context-window: the server does not report it, so it is required")
        kind = self._kind = KINDS[server.kind]
        sees = self._options.vision == "on" or (self._options.vision == "auto" and listed.sees)
        if not kind.salts:
            log.warning("url=%s: tenants share its prefix cache", self._options.url)
        self._tokens = ServerTokens(server, kind)
        # Where gateways have the tokenizer they ask nobody.
        tells = not self.facts.vocab_size and await self._tokens.try_out(
            self._options.upstream_model
        )
        self.facts = msgspec.structs.replace(
            self.facts,
            engine=f"{server.kind} {server.version}".strip(),
            context_window=window,
            adapters=listed.adapters,
            capabilities=(
                *kind.capabilities,
                *([Capability.VISION] if sees else ()),
                *KV_ROLES[self._options.kv_role],
                *([Capability.PRIORITY] if self._options.priorities else ()),
                # Their ids mean something only where the tokenizer is known.
                *([Capability.LOGPROBS] if kind.scores and self.facts.vocab_size else ()),
                *([Capability.TOKENIZES] if tells else ()),
            ),
        )
        await self._follow(server, events)
        self._spawn(self._beat())

    def submit(self, job: Job) -> None:
        check_text_job(job, self.facts)
        check_room(job.request, self._running, self.facts)
        path, body = request_of(job, self._options, self._kind)
        running = RemoteJob(
            job,
            clock_us(),
            counts_choices=self._kind.counts,
            read=MessagesReader().read if self._kind.messages else read_chunk,
            rank=None if self._cache is None else self._cache.send(job),
        )
        self._running[job.request] = running
        self._tasks[job.request] = self._spawn(self._serve(running, path, body))

    async def token_ids(self, model: str, request_json: bytes) -> bytes:
        if self._tokens is None:
            return b""
        return await self._tokens.ids(self._options.known_as(model), request_json)

    def cancel(self, request: bytes) -> None:
        """Idempotent; unknown requests are ignored. The connection closes with the task."""
        running = self._running.get(request)
        if running is not None:
            self._cut(running, "cancelled")

    def kv_snapshot(self) -> KvEvents:
        if self._cache is not None:
            return self._cache.snapshot()
        return KvEvents(seq=0, stored=b"", removed=b"", snapshot=True, unknown=True)

    def computing(self) -> None:
        """The server computes; `_beat` reports for it."""

    async def close(self) -> None:
        """End what runs as cancelled and close all connections."""
        for request in list(self._running):
            self.cancel(request)
        for task in self._ending:
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)
        self._flush()
        if self._server is not None:
            await self._server.close()

    def _connect(self) -> Server:
        self._server = self._server or Server(self._options)
        return self._server

    async def _follow(self, server: Server, events: EngineEvents) -> None:
        """Begin to follow the server's cache, where it can be."""
        if not self._options.kv_events:
            return
        size = await server.cache_size() if self._kind.publishes else None
        if size is None:
            log.error("--kv-events: %s does not tell the size of its cache", server.kind)
            return
        block_size, blocks, ranks = size
        self._cache = ServerCache(
            self._kind, self._options.kv_events, events.on_kv, block_size=block_size, ranks=ranks
        )
        capabilities = (*self.facts.capabilities, Capability.KV_EVENTS)
        self.facts = msgspec.structs.replace(
            self.facts, block_size=block_size, kv_blocks=blocks * ranks, capabilities=capabilities
        )
        for follower in self._cache.followers:
            self._spawn(follower.run())

    async def _serve(self, running: RemoteJob, path: str, body: bytes) -> None:
        """One job from request to end; it ends exactly once in any case."""
        assert self._server is not None
        now = asyncio.get_running_loop().time
        end_s = now() + running.job.deadline_ms / MILLISECONDS_PER_S
        try:
            if running.job.hands_over:
                answer = await self._server.whole(path, body, end_s=end_s, headers=running.headers)
                handed_over = read_handed_over(answer)
                self._forget(running)
                self._emit(running.hand_over(handed_over, clock_us()))
                return
            await self._server.stream(
                path,
                body,
                heard=lambda: running.hear(clock_us()),
                take=lambda event: self._take(running, event),
                end_s=end_s,
                headers=running.headers,
            )
            self._break(running, "the server ended the stream too soon")
        except JobRefused as refused:
            self._refuse(running, refused)
        except TimeoutError:
            if now() >= end_s:
                self._end(running, "cancelled")
            else:
                self._break(running, "the server was silent for too long")
        except (httpx2.HTTPError, httpx2.StreamError, UpstreamBroken, OSError) as error:
            self._break(running, f"{type(error).__name__}: {error}")

    def _take(self, running: RemoteJob, event: bytes) -> bool:
        """One event of a job; False when it has ended. Raises `JobRefused`, `UpstreamBroken`."""
        chunk = running.read(event)
        if chunk is None:
            if not running.all_ended:
                raise UpstreamBroken("the end mark came before the end of every choice")
            self._end(running, "stop")
            return False
        if chunk.error is not None:
            raise error_in_stream(chunk.error, key=self._options.key)
        self._emit(running.take(chunk, clock_us()))
        if running.overlong:
            log.warning("cut off: the server ignores %s", self._options.output_field)
            self._cut(running, "length")
            return False
        return True

    def _cut(self, running: RemoteJob, reason: str) -> None:
        """End a job immediately; closing its connection cancels it on the server."""
        task = self._tasks[running.job.request]
        self._end(running, reason)
        task.cancel()

    def _break(self, running: RemoteJob, reason: str) -> None:
        """The server disconnected: an answer without only its count is complete."""
        if running.all_ended:
            self._end(running, "stop")
        else:
            self._refuse(running, JobRefused("full", reason))

    def _refuse(self, running: RemoteJob, refused: JobRefused) -> None:
        """Return a job, or end it with what it has if part of it was sent."""
        if self._running.get(running.job.request) is not running:
            return
        self._log(refused)
        if running.delivered:
            self._end(running, "error")
            return
        self._forget(running)
        if self._events is not None:
            self._events.on_refused(running.job.request, refused)

    def _log(self, refused: JobRefused) -> None:
        said = f"HTTP {refused.status}" if isinstance(refused, ServerRefused) else str(refused)
        level = logging.WARNING
        if isinstance(refused, ServerRefused) and refused.status in UNAUTHORIZED:
            level, said = logging.ERROR, f"{said}: check {KEY_VARIABLE}"
        log.log(level, "upstream url=%s code=%s: %s", self._options.url, refused.code, said)

    def _end(self, running: RemoteJob, reason: str) -> None:
        """The last outputs of a job, once; `reason` for choices that the server did not end."""
        if self._running.get(running.job.request) is not running:
            return
        self._forget(running)
        self._check_told(running)
        self._emit(running.end(reason, clock_us()))

    def _forget(self, running: RemoteJob) -> None:
        if self._cache is not None:
            usage = running.usage()
            uncached = usage.prompt_tokens - usage.cached_tokens
            since_us = running.received_us
            self._cache.done(running.job, running.rank, uncached, since_us=since_us)
        del self._running[running.job.request], self._tasks[running.job.request]

    def _check_told(self, running: RemoteJob) -> None:
        """What the server told of the prompt, by its count; gateways do without what is wrong."""
        usage, job, told = running.usage(), running.job, self._tokens
        if told is None or usage.source == "estimate" or job.lengths:
            return
        told.counted(job.request_json, usage.prompt_tokens)
        if not told.tells and Capability.TOKENIZES in self.facts.capabilities:
            kept = [each for each in self.facts.capabilities if each != Capability.TOKENIZES]
            self.facts = msgspec.structs.replace(self.facts, capabilities=tuple(kept))

    def _emit(self, outputs: list[Output]) -> None:
        """Put outputs into the next step, which is made once per turn of the event loop."""
        if outputs and not self._outputs:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outputs += outputs

    def _flush(self) -> None:
        while self._outputs:
            chars, count = 0, 0
            for output in self._outputs:
                chars += _chars(output)
                if count and chars > STEP_CHARS_MAX:
                    break
                count += 1
            outputs, self._outputs = self._outputs[:count], self._outputs[count:]
            self._step(outputs)

    def _step(self, outputs: list[Output], processing: list[Processing] | None = None) -> None:
        if self._events is None:
            return
        waiting = sum(not running.delivered for running in self._running.values())
        load = {"running": len(self._running) - waiting, "waiting": waiting}
        step = msgspec.structs.replace(
            NO_STEP, outputs=outputs, processing=processing or [], **load
        )
        self._events.on_step(step if self._cache is None else self._with_cache(step, self._cache))

    def _with_cache(self, step: Step, cache: ServerCache) -> Step:
        """With what the cache holds, as far as it is told here: what runs needs its blocks."""
        blocks = [running.tokens // cache.block_size + 1 for running in self._running.values()]
        in_use = min(sum(blocks), self.facts.kv_blocks)
        free = self.facts.kv_blocks - in_use
        return msgspec.structs.replace(
            step,
            kv_free_blocks=free,
            kv_cached_blocks=cache.idle(free, in_use=in_use, running=step.running),
            oldest_block_s=cache.oldest_s(),
        )

    async def _beat(self) -> None:
        """A server may think for long: running jobs are reported, so that they do not look stuck.

        Each job ends by its own bounds, so what is here is within them.
        """
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if self._cache is not None:
                self._cache.look()
            if self._running:
                now_us = clock_us()
                self._step([], [running.processing(now_us) for running in self._running.values()])

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and (error := task.exception()) and self._events is not None:
            # A defect: its job would hang, and so would the next that meets it.
            self._events.on_death(error)


def _vocab_size(folder: Path) -> int:
    """Raises `ModelError`."""
    try:
        return Tokenizer.from_file(str(folder / TOKENIZER_FILE)).get_vocab_size()
    except Exception as error:  # It raises nothing narrower.
        raise ModelError(f"{folder / TOKENIZER_FILE}: {error}") from error


def _chars(output: Output) -> int:
    calls = output.tool_calls or ()
    texts = len(output.text or "") + len(output.reasoning or "")
    return texts + sum(len(call.arguments) for call in calls)
