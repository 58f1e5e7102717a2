"""Starting an engine, which may take minutes and must not look dead until then; and one real token
through it: before the node offers itself, and again when it was idle. Then, once, how fast it is.

An engine that embeds makes one vector instead. `--check` does no more than that, and contacts no
gateway.
"""

import asyncio
import logging
import secrets
import time

import msgspec

from inference.contract.capabilities import Capability
from inference.contract.frames import REQUEST_ID_BYTES, Job, KvEvents, Output, Sampling, Step
from inference.contract.roofline import SLOW_CHARS_MAX, Ceilings, ComputePath
from inference.engines.base import PROCESSES, Engine, EngineEvents, EngineFacts, account_s
from inference.errors import JobRefused, ModelError
from inference.node.assets import Assets
from inference.node.options import LOADING_LOG_S, PROBE_TIMEOUT_S

log = logging.getLogger(__name__)

MILLISECONDS_PER_S = 1000
MICROSECONDS_PER_S = 1_000_000
GIGA, TERA = 1e9, 1e12
# What `--check` says of an engine as it declares it.
SHOWN = ("model", "engine", "device", "dtype", "context_window", "vocab_size")
# For engines that take text; the shortest prompt that every chat model takes.
TEXT_PROMPT = b'{"messages":[{"role":"user","content":"1"}]}'
ENDS = frozenset({"stop", "length"})
BARE_PROMPT = b'{"prompt":"1"}'
# The request by which the rates are measured: of a prompt of so many tokens, so many more. It ends
# with the step in which this time has passed; a slow engine gets a prompt that leaves half of it.
MEASURE_S_MAX = 0.8
MEASURED_PROMPT_MAX, MEASURED_PROMPT_MIN = 256, 16
MEASURED_TOKENS = 33
# Far apart, so that neighbours in the prompt are different tokens.
STRIDE = 7919

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
    """Jobs one after the other; implements `EngineEvents`, since outputs are read from steps."""

    def __init__(self, facts: EngineFacts) -> None:
        self._facts = facts
        # A server that loads its model first has as long as for any other answer.
        self._timeout_s = max(PROBE_TIMEOUT_S, facts.silence_s)
        self.request = b""
        self._tokens = 0
        self._finish: asyncio.Future[Output] = asyncio.get_running_loop().create_future()

    def on_step(self, step: Step) -> None:
        for output in step.outputs:
            if output.request != self.request:
                continue
            # A server that thinks before it speaks counts a token and shows none.
            self._tokens = max(self._tokens + output.delivered, output.usage.completion_tokens)
            if output.finish is not None and not self._finish.done():
                self._finish.set_result(output)

    def on_kv(self, events: KvEvents) -> None:
        """Of no use to a probe."""

    def on_refused(self, request: bytes, refused: JobRefused) -> None:
        if request == self.request:
            self.on_death(refused)

    def on_death(self, error: BaseException) -> None:
        """The engine is dead, or does not take the job: no token will come."""
        if not self._finish.done():
            failed = ModelError(f"probe: {error}")
            failed.__cause__ = error
            self._finish.set_exception(failed)

    async def run(self, engine: Engine) -> float:
        """Seconds until one token came; raises `ModelError` when none did."""
        facts = engine.facts
        takes_text = Capability.TEXT in facts.capabilities
        embeds = Capability.EMBEDDINGS in facts.capabilities
        sampling = Sampling(max_tokens=1, temperature=0.0, ignore_eos=not takes_text)
        job = self._job([] if takes_text or embeds else [0], sampling, self._timeout_s)
        if takes_text:
            job = msgspec.structs.replace(job, request_json=TEXT_PROMPT)
        elif embeds:
            job = msgspec.structs.replace(job, inputs=[[0]])
        began_s = time.monotonic()
        try:
            last = await self._end_of(job, engine)
        except ModelError as error:
            # Its model may not chat.
            if not takes_text or getattr(error.__cause__, "code", "") != "bad_request":
                raise
            request = secrets.token_bytes(REQUEST_ID_BYTES)
            job = msgspec.structs.replace(job, request=request, request_json=BARE_PROMPT)
            last = await self._end_of(job, engine)
        if not self._tokens or last.finish not in ENDS:
            raise ModelError(
                f"probe: the engine ended with {last.finish!r} and {self._tokens} tokens"
            )
        return time.monotonic() - began_s

    async def measure(self, engine: Engine, token_s: float) -> ComputePath | None:
        """How the engine computes, with its rates where it takes token ids; None where it cannot
        say. `token_s` is what one token took.
        """
        facts = engine.facts
        if facts.path is None:
            return None
        path = msgspec.structs.replace(facts.path, slow=_bounded(facts.path.slow))
        if Capability.TOKENS not in facts.capabilities:
            return path
        room = min(facts.context_window, facts.kv_blocks * facts.block_size) // 2
        length = max(MEASURED_PROMPT_MIN, int(MEASURE_S_MAX / 2 / max(token_s, 1e-6)))
        length = min(length, MEASURED_PROMPT_MAX, room)
        prompt = [place * STRIDE % facts.vocab_size for place in range(length)]
        sampling = Sampling(max_tokens=min(MEASURED_TOKENS, room), ignore_eos=True)
        try:
            last = await self._end_of(self._job(prompt, sampling, MEASURE_S_MAX), engine)
        except ModelError as error:
            log.warning("rates not measured: %s", error)
            return path
        return msgspec.structs.replace(path, **_rates(last, token_s))

    def _job(self, tokens: list[int], sampling: Sampling, deadline_s: float) -> Job:
        return Job(
            request=secrets.token_bytes(REQUEST_ID_BYTES), model=self._facts.model, tokens=tokens,
            salt=b"probe", hashes=b"", sampling=sampling, stop_tokens=[],
            deadline_ms=int(deadline_s * MILLISECONDS_PER_S),
        )  # fmt: skip

    async def _end_of(self, job: Job, engine: Engine) -> Output:
        """The job's last output; raises `ModelError` where none comes."""
        self.request, self._tokens = job.request, 0
        self._finish = asyncio.get_running_loop().create_future()
        try:
            engine.submit(job)
            async with asyncio.timeout(self._timeout_s):
                return await self._finish
        except JobRefused as error:
            raise ModelError(f"probe: the engine refused one token: {error}") from error
        except TimeoutError as error:
            engine.cancel(job.request)
            raise ModelError(f"probe: no token within {self._timeout_s:.0f} s") from error


def _rates(last: Output, token_s: float) -> dict[str, float]:
    """Of the measured request; an engine too slow for two tokens decodes as it made the first."""
    made, prefill_us, decode_us = (
        last.usage.completion_tokens, last.timing.prefill_us, last.timing.decode_us
    )  # fmt: skip
    rates = {"decode_tokens_s": 1 / max(token_s, 1e-6)}
    if made > 1 and decode_us:
        rates["decode_tokens_s"] = (made - 1) * MICROSECONDS_PER_S / decode_us
    if prefill_us and last.usage.prompt_tokens:
        rates["prefill_tokens_s"] = last.usage.prompt_tokens * MICROSECONDS_PER_S / prefill_us
    return rates


def _bounded(reason: str) -> str:
    """As gateways take it: a compiler's words may be anything."""
    return "".join(filter(str.isprintable, reason))[:SLOW_CHARS_MAX]


async def check(engine: Engine, assets: Assets) -> list[str]:
    """Lines of `name: value` about the model; raises `ModelError`."""
    probe = Probe(engine.facts)
    began_s = time.monotonic()
    try:
        await start_engine(engine, probe)
        loaded_s = time.monotonic() - began_s
        probe_s = await probe.run(engine)
        path = await probe.measure(engine, probe_s)
    finally:
        await engine.close()
    facts = engine.facts
    report = {
        **{name: getattr(facts, name) for name in SHOWN},
        **_performance(path, facts.ceilings),
        "kv_blocks": f"{facts.kv_blocks} of {facts.block_size} tokens",
        "credits": facts.credits,
        "capabilities": " ".join(facts.capabilities),
        "tokenizer": assets.digest or "the server's own",
        "chat_template": assets.template,
        "load_s": f"{loaded_s:.2f}",
        "probe_ms": f"{probe_s * MILLISECONDS_PER_S:.1f}",
    }
    return [f"{name}: {value}" for name, value in report.items()]


def _performance(path: ComputePath | None, ceilings: Ceilings | None) -> dict[str, str]:
    """What this machine does with the model, as far as that is known."""
    told: dict[str, str] = {}
    if path is not None:
        told |= {"kernels": path.kernels, "slow": path.slow or "no"}
        for phase in ("decode", "prefill"):
            rate = getattr(path, f"{phase}_tokens_s")
            if rate is not None:
                told[phase] = f"{rate:,.{0 if rate >= 100 else 2}f} tokens/s, one request alone"
    if ceilings is not None:
        told["memory"] = f"{ceilings.read_bytes_s / GIGA:.3g} GB/s read ({ceilings.source})"
        told["products"] = f"{ceilings.flop_s / TERA:.3g} TFLOP/s"
    return told
