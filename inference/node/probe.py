"""Starting an engine, which may take minutes and must not look dead until then; and one real token
through it: before the node offers itself, and again when it was idle.

An engine that embeds makes one vector instead. `--check` does no more than that, and contacts no
gateway.
"""

import asyncio
import logging
import secrets
import time

from inference.contract.capabilities import Capability
from inference.contract.frames import REQUEST_ID_BYTES, Job, KvEvents, Sampling, Step
from inference.engines.base import PROCESSES, Engine, EngineEvents, EngineFacts, account_s
from inference.errors import JobRefused, ModelError
from inference.node.assets import Assets
from inference.node.options import LOADING_LOG_S, PROBE_TIMEOUT_S

log = logging.getLogger(__name__)

MILLISECONDS_PER_S = 1000
# What `--check` says of an engine as it declares it.
SHOWN = ("model", "engine", "device", "dtype", "context_window", "vocab_size")
# For engines that take text; the shortest prompt that every chat model takes.
TEXT_PROMPT = b'{"messages":[{"role":"user","content":"1"}]}'
ENDS = frozenset({"stop", "length"})

# As those of `computing` are counted.
START_FIELD = 19


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


def process_age_s() -> float:
    """Seconds since the process was started; 0 where no such account is kept."""
    started_s = account_s(PROCESSES / "self", START_FIELD)
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return 0.0 if started_s is None else max(0.0, now_s - started_s)


class Probe:
    """A job of one token; implements `EngineEvents`, since outputs are read from steps."""

    def __init__(self, facts: EngineFacts) -> None:
        takes_text = Capability.TEXT in facts.capabilities
        embeds = Capability.EMBEDDINGS in facts.capabilities
        # A server that loads its model first has as long as for any other answer.
        self._timeout_s = max(PROBE_TIMEOUT_S, facts.silence_s)
        self.request = secrets.token_bytes(REQUEST_ID_BYTES)
        self._job = Job(
            request=self.request,
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
            if output.request != self.request:
                continue
            # A server that thinks before it speaks counts a token and shows none.
            self._tokens = max(self._tokens + output.delivered, output.usage.completion_tokens)
            if output.finish is not None and not self._finish.done():
                self._finish.set_result(output.finish)

    def on_kv(self, events: KvEvents) -> None:
        """Of no use to a probe."""

    def on_refused(self, request: bytes, refused: JobRefused) -> None:
        if request == self.request:
            self.on_death(refused)

    def on_death(self, error: BaseException) -> None:
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
            engine.cancel(self.request)
            raise ModelError(f"probe: no token within {self._timeout_s:.0f} s") from error
        if not self._tokens or finish not in ENDS:
            raise ModelError(f"probe: the engine ended with {finish!r} and {self._tokens} tokens")
        return time.monotonic() - began_s


async def check(engine: Engine, assets: Assets) -> list[str]:
    """Lines of `name: value` about the model; raises `ModelError`."""
    probe = Probe(engine.facts)
    began_s = time.monotonic()
    try:
        await start_engine(engine, probe)
        loaded_s = time.monotonic() - began_s
        probe_s = await probe.run(engine)
    finally:
        await engine.close()
    facts = engine.facts
    report = {
        **{name: getattr(facts, name) for name in SHOWN},
        "kv_blocks": f"{facts.kv_blocks} of {facts.block_size} tokens",
        "credits": facts.credits,
        "capabilities": " ".join(facts.capabilities),
        "tokenizer": assets.digest or "the server's own",
        "chat_template": assets.template,
        "load_s": f"{loaded_s:.2f}",
        "probe_ms": f"{probe_s * 1000:.1f}",
    }
    return [f"{name}: {value}" for name, value in report.items()]
