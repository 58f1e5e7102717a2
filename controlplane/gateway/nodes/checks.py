"""What a node may claim: the range of every figure in one table, and pure checks of its frames,
each returning the reason it is impossible; and whether its hello is let in at all, by its
credential.

Figures of an `Output`, which come with every token, are checked together with the rest
of it; a test sends each figure of each frame beyond its range and wants a strike that names it.
"""

import math
from collections.abc import Iterator, Mapping

import msgspec

from controlplane.gateway.nodes import limits
from controlplane.gateway.nodes.host import LinkRefused
from controlplane.gateway.ports import NodeIdentity
from inference.contract import frames
from inference.contract.drain import Draining
from inference.contract.frames import (
    PROTOCOL_VERSION,
    Credits,
    Hello,
    KvEvents,
    ModelOffer,
    Pong,
    Processing,
    Step,
)
from inference.contract.parts import TokenLogprob, prompt_at
from inference.contract.replay import Resume
from inference.contract.roofline import SHARE_MAX, SLOW_CHARS_MAX, Ceilings, ComputePath, Shares

CONTEXT_WINDOW_MAX = 16_777_216
VOCAB_SIZE_MAX = 4_194_304
# A day: a node that needs longer has failed at something else.
COLD_START_MS_MAX = 86_400_000
MS_PER_S = 1_000
DRAIN_S_MAX = SILENCE_S_MAX = 86_400.0
# A device that is faster is not built.
CEILING_MAX = 1e18
TOKENS_S = (1e-3, 1e9)
# 36 minutes: what a span of the waterfall can hold.
DURATION_US_MAX = 2**31 - 1
# Prompts of the largest window for 256 requests.
QUEUED_TOKENS_MAX = 2**32
SEQUENCES_MAX = 1_048_576
STEP_TOKENS_MAX = 16_777_216
DRAFTED_MAX = 1_048_576
# Ten years.
BLOCK_AGE_S_MAX = 315_360_000.0
# The greatest count that every reader of JSON keeps exactly.
COUNTER_MAX = 2**53 - 1

Range = tuple[float, float]
RANGES: Mapping[type[msgspec.Struct], Mapping[str, Range]] = {
    Hello: {
        "credits": (0, limits.CREDITS_MAX),
        "block_size": (1, limits.BLOCK_SIZE_MAX),
        "kv_blocks": (0, limits.KV_BLOCKS_MAX),
        "cold_start_ms": (0, COLD_START_MS_MAX),
        "silence_s": (0, SILENCE_S_MAX),
    },
    Ceilings: {"read_bytes_s": (1, CEILING_MAX), "flop_s": (1, CEILING_MAX)},
    ComputePath: {"decode_tokens_s": TOKENS_S, "prefill_tokens_s": TOKENS_S},
    ModelOffer: {"context_window": (1, CONTEXT_WINDOW_MAX), "vocab_size": (0, VOCAB_SIZE_MAX)},
    Step: {
        "running": (0, SEQUENCES_MAX),
        "waiting": (0, SEQUENCES_MAX),
        "waiting_tokens": (0, QUEUED_TOKENS_MAX),
        "kv_free_blocks": (0, limits.KV_BLOCKS_MAX),
        "oldest_block_s": (0, BLOCK_AGE_S_MAX),
        "step_us": (0, DURATION_US_MAX),
        "preemptions": (0, SEQUENCES_MAX),
        "drafted": (0, DRAFTED_MAX),
        "accepted": (0, DRAFTED_MAX),
        "prefilled_tokens": (0, STEP_TOKENS_MAX),
        "kv_cached_blocks": (0, limits.KV_BLOCKS_MAX),
        "others_active": (0, SEQUENCES_MAX),
        "others_queued_tokens": (0, QUEUED_TOKENS_MAX),
        "computing_ms": (0, MS_PER_S * SILENCE_S_MAX),
    },
    Processing: {"silent_ms": (0, MS_PER_S * SILENCE_S_MAX)},
    Shares: {"decode": (0, SHARE_MAX), "prefill": (0, SHARE_MAX)},
    KvEvents: {"seq": (0, COUNTER_MAX)},
    Credits: {"number": (0, COUNTER_MAX), "credits": (0, limits.CREDITS_MAX)},
    Draining: {"deadline_s": (0, DRAIN_S_MAX)},
    Pong: {"received": (0, COUNTER_MAX), "cpu_permille": (0, 1_000)},
    Resume: {"received": (0, COUNTER_MAX), "held": (0, COUNTER_MAX)},
}
_NONE: Mapping[str, Range] = {}
_NAMES = {
    Hello: "hello", Ceilings: "hello.ceilings", ComputePath: "hello.path",
    ModelOffer: "hello.models", Step: "step", Shares: "step.shares",
    Processing: "step.processing", KvEvents: "kv", Credits: "credits", Draining: "draining",
    Pong: "pong", Resume: "resume",
}  # fmt: skip
FINISHES = frozenset({"stop", "length", "cancelled", "error"})
EMBED_FINISHES = FINISHES - {"length"}
TEXT_FINISHES = FINISHES | {"tool_calls", "content_filter"}
TOOL_CALLS_MAX = 128
DIGEST_CHARS = 64
HEX_DIGITS = frozenset("0123456789abcdef")
DIMENSIONS_MAX = 65_536
FLOAT_BYTES = 4
# One less than the choices of the largest job could make: what a column of the ledger holds.
COMPLETION_TOKENS_MAX = frames.JOB_CHOICES_MAX * CONTEXT_WINDOW_MAX - 1
# Beyond any that a model can have, also in half precision.
LOGPROB_ABS_MAX = 1e6


def figure_problem(frame: msgspec.Struct) -> str | None:
    """The first figure that is out of its range; None fits where a field may have none."""
    kind = type(frame)
    for field, (low, high) in RANGES.get(kind, _NONE).items():
        value = getattr(frame, field)
        # Also refuses NaN, which is neither below nor above.
        if value is not None and not low <= value <= high:
            return f"{_NAMES[kind]}.{field}: {value} is not in {low:.17g}..{high:.17g}"
    return None


def claim_problem(frame: frames.FromNode) -> str | None:
    """Why a frame cannot be true, whatever came before it; a hello is checked by itself."""
    if isinstance(frame, frames.Step):
        return step_problem(frame)
    if isinstance(frame, frames.Report):
        return report_problem(frame)
    if isinstance(frame, frames.Offers):
        return _abilities_problem(frame.capabilities) or _offers_problem(frame.models)
    return None if isinstance(frame, frames.Hello) else figure_problem(frame)


def hello_problem(hello: frames.Hello) -> str | None:
    """The first field of a hello that is out of range."""
    for field in ("node", "epoch", "pool", "region", "engine", "device", "dtype"):
        chars_max = limits.PLACE_CHARS_MAX if field in ("pool", "region") else limits.NAME_CHARS_MAX
        if not _is_name(getattr(hello, field), chars_max):
            return f"hello.{field}: must have 1 to {chars_max} printable characters"
    if hello.session and not _is_name(hello.session, limits.NAME_CHARS_MAX):
        return f"hello.session: must have at most {limits.NAME_CHARS_MAX} printable characters"
    return (
        figure_problem(hello)
        or _abilities_problem(hello.capabilities)
        or (hello.ceilings and _ceilings_problem(hello.ceilings))
        or (hello.path and _path_problem(hello.path))
        or _offers_problem(hello.models)
    )


def _abilities_problem(told: list[str]) -> str | None:
    names = [each for each in told if _is_name(each, limits.NAME_CHARS_MAX)]
    right = names == told and len(told) <= limits.CAPABILITIES_MAX
    return None if right else f"hello.capabilities: not at most {limits.CAPABILITIES_MAX} names"


def _offers_problem(models: list[ModelOffer]) -> str | None:
    if not 1 <= len(models) <= frames.MODELS_MAX:
        return f"hello.models: {len(models)} is not in 1..{frames.MODELS_MAX}"
    if len({offer.name for offer in models}) != len(models):
        return "hello.models: a name occurs twice"
    return next((problem for offer in models if (problem := _offer_problem(offer))), None)


def _ceilings_problem(ceilings: Ceilings) -> str | None:
    if not _is_name(ceilings.source, limits.NAME_CHARS_MAX):
        return f"hello.ceilings.source: must have 1 to {limits.NAME_CHARS_MAX} printable characters"
    return figure_problem(ceilings)


def _path_problem(path: ComputePath) -> str | None:
    if not _is_name(path.kernels, limits.NAME_CHARS_MAX):
        return f"hello.path.kernels: must have 1 to {limits.NAME_CHARS_MAX} printable characters"
    if path.slow and not _is_name(path.slow, SLOW_CHARS_MAX):
        return f"hello.path.slow: must have at most {SLOW_CHARS_MAX} printable characters"
    return figure_problem(path)


def _is_name(text: str, chars_max: int) -> bool:
    # One NUL would keep the database from taking the view of all nodes of this gateway.
    return 1 <= len(text) <= chars_max and text.isprintable()


def _offer_problem(offer: frames.ModelOffer) -> str | None:
    if not _is_name(offer.name, limits.NAME_CHARS_MAX):
        return f"hello.models.name: must have 1 to {limits.NAME_CHARS_MAX} printable characters"
    if (problem := figure_problem(offer)) is not None:
        return problem
    if any(not 1 <= size <= DIMENSIONS_MAX for size in offer.dimensions):
        return f"hello.models.dimensions: not in 1..{DIMENSIONS_MAX}"
    if not offer.digest and not offer.vocab_size and not offer.dimensions:
        return None
    if len(offer.digest) != DIGEST_CHARS or not HEX_DIGITS.issuperset(offer.digest):
        return "hello.models.digest: must be 64 lower-case hex digits"
    if not offer.vocab_size:
        return "hello.models.vocab_size: 0 beside a digest"
    return None


def step_problem(step: frames.Step) -> str | None:
    parts: list[msgspec.Struct] = [step, *step.processing]
    if step.shares is not None:
        parts.append(step.shares)
    if problem := next(filter(None, map(figure_problem, parts)), None):
        return problem
    if step.kv_cached_blocks > step.kv_free_blocks:
        return f"step.kv_cached_blocks: {step.kv_cached_blocks} of {step.kv_free_blocks} free ones"
    if step.accepted > step.drafted:
        return f"step.accepted: {step.accepted} of {step.drafted} drafts"
    return None


def output_problem(output: frames.Output, *, job: frames.Job, vocab_size: int) -> str | None:
    """What one output says about itself, whatever came before it."""
    tokens = output.tokens
    if not 0 <= output.choice < job.choices:
        return f"output.choice: {output.choice} of {job.choices}"
    if output.finish is not None and output.finish not in FINISHES:
        return "output.finish: unknown reason"
    if not (output.text is None and output.reasoning is None and output.tool_calls is None):
        return "output.text: this model was offered with a tokenizer"
    if len(tokens) > frames.OUTPUT_TOKENS_PER_FRAME_MAX:
        return f"output.tokens: {len(tokens)} in one frame"
    if tokens and not (min(tokens) >= 0 and max(tokens) < vocab_size):
        return "output.tokens: id outside the vocabulary"
    problem = usage_problem(output.usage) or timing_problem(output.timing)
    if problem is None and output.logprobs is not None:
        ends = output.finish == "stop" and job.sampling.prompt_logprobs is not None
        told = len(tokens) + (ends and len(output.logprobs) > len(tokens))
        problem = _logprobs_problem(output.logprobs, tokens=told, vocab_size=vocab_size)
    return problem


def scores_problem(
    output: frames.Output, job: frames.Job, *, scored: int, vocab_size: int
) -> str | None:
    """Log probabilities of a prompt, of which `scored` have come: wanted, and in its order."""
    if job.sampling.prompt_logprobs is None and not output.prompt_logprobs:
        return None
    place, choice = divmod(output.choice, job.sampling.n)
    rest = prompt_at(job.tokens, job.lengths, place)[1 + scored :]
    if job.sampling.prompt_logprobs is None or choice:
        rest = []
    scores = output.prompt_logprobs or []
    if [each.token for each in scores] != rest[: len(scores)]:
        return "output.prompt_logprobs: not of the next tokens of the prompt"
    if len(scores) < len(rest) and (output.tokens or output.finish in ("stop", "length")):
        return "output.prompt_logprobs: the prompt is not scored to its end"
    return _logprobs_problem(scores, tokens=len(scores), vocab_size=vocab_size)


def text_output_problem(output: frames.Output, *, choices: int, vocab_size: int = 0) -> str | None:
    """The same of an engine that takes only text: its counts are its own, and only bounded."""
    if not 0 <= output.choice < choices:
        return f"output.choice: {output.choice} of {choices}"
    if output.finish is not None and output.finish not in TEXT_FINISHES:
        return "output.finish: unknown reason"
    if output.tokens:
        return "output.tokens: of an engine that takes text"
    scores = output.logprobs or []
    if problem := _logprobs_problem(scores, tokens=len(scores), vocab_size=vocab_size):
        return problem
    calls = output.tool_calls or ()
    if len(calls) > TOOL_CALLS_MAX or any(not 0 <= c.index < TOOL_CALLS_MAX for c in calls):
        return f"output.tool_calls: more than {TOOL_CALLS_MAX}"
    parts = (part for c in calls for part in (c.id, c.name, c.arguments))
    texts = (output.text, output.reasoning, output.transfer, *parts)
    if sum(len(part or "") for part in texts) > frames.OUTPUT_TEXT_CHARS_MAX:
        return f"output.text: more than {frames.OUTPUT_TEXT_CHARS_MAX} characters"
    return usage_problem(output.usage) or timing_problem(output.timing)


def vectors_problem(
    output: frames.Output, job: frames.Job, *, missing: set[int], dimensions: int
) -> str | None:
    """The same of an engine that embeds; `missing` are the inputs without a vector so far."""
    foreign = (
        output.tokens, output.logprobs, output.text, output.reasoning, output.tool_calls
    )  # fmt: skip
    if output.choice or any(foreign):
        return "output: holds more than vectors"
    if output.finish is not None and output.finish not in EMBED_FINISHES:
        return "output.finish: unknown reason"
    places = output.vectors.places if output.vectors else []
    left = missing.difference(places)
    if len(missing) - len(left) != len(places):
        return "output.vectors.places: not inputs that wait for one"
    if (output.finish == "stop") == bool(left):
        return "output.finish: stop is said with the last vector"
    if output.vectors is not None:
        data = output.vectors.data
        if not places or len(data) != len(places) * dimensions * FLOAT_BYTES:
            return f"output.vectors.data: not {len(places)} vectors of {dimensions}"
        if not math.isfinite(sum(memoryview(data).cast("f"))):
            return "output.vectors.data: not finite"
    done = sum(len(ids) for place, ids in enumerate(job.inputs) if place not in left)
    if output.usage != frames.Usage(prompt_tokens=done, cached_tokens=0, completion_tokens=0):
        return "output.usage: not the tokens of the inputs that have a vector"
    return timing_problem(output.timing)


def _logprobs_problem(logprobs: list[TokenLogprob], *, tokens: int, vocab_size: int) -> str | None:
    if len(logprobs) != tokens or any(len(entry.top) > frames.LOGPROBS_MAX for entry in logprobs):
        return "output.logprobs: not one entry per token"
    for token, logprob in _pairs(logprobs):
        if not 0 <= token < vocab_size:
            return "output.logprobs: id outside the vocabulary"
        if not abs(logprob) <= LOGPROB_ABS_MAX:
            return f"output.logprobs: not within {LOGPROB_ABS_MAX:g} of 0"
    return None


def _pairs(logprobs: list[TokenLogprob]) -> Iterator[tuple[int, float]]:
    for entry in logprobs:
        yield entry.token, entry.logprob
        yield from entry.top


def usage_problem(usage: frames.Usage) -> str | None:
    """Counts that contradict each other, or are more than any model can have."""
    if not 0 <= usage.cached_tokens <= usage.prompt_tokens:
        return "usage.cached_tokens: not within prompt_tokens"
    if usage.prompt_tokens > CONTEXT_WINDOW_MAX:
        return f"usage.prompt_tokens: over {CONTEXT_WINDOW_MAX}"
    if not 0 <= usage.completion_tokens <= COMPLETION_TOKENS_MAX:
        return f"usage.completion_tokens: not in 0..{COMPLETION_TOKENS_MAX}"
    if not 0 <= usage.reasoning_tokens <= usage.completion_tokens:
        return "usage.reasoning_tokens: not within completion_tokens"
    if usage.source not in frames.USAGE_SOURCES:
        return "usage.source: unknown"
    return None


def progress_problem(
    usage: frames.Usage, before: frames.Usage, *, prompt_tokens: int
) -> str | None:
    """Cumulative counts may only grow, and the prompt is ours: we sent it."""
    if (
        usage.prompt_tokens < before.prompt_tokens
        or usage.cached_tokens < before.cached_tokens
        or usage.completion_tokens < before.completion_tokens
    ):
        return "usage: a count went backwards"
    if usage.prompt_tokens > prompt_tokens:
        return f"usage.prompt_tokens: {usage.prompt_tokens} for a prompt of {prompt_tokens}"
    return None


def completion_problem(
    usage: frames.Usage, job: frames.Job, *, delivered_tokens: int, ended: bool
) -> str | None:
    """Completion tokens claimed against those delivered; each choice may count one end token.

    The total covers all choices, so with several it can run ahead of this output inside a step;
    then only the end is compared.
    """
    if max(usage.completion_tokens, delivered_tokens) > job.sampling.max_tokens * job.choices:
        return f"usage.completion_tokens: over max_tokens {job.sampling.max_tokens}"
    exact = ended or job.choices == 1
    if exact and usage.completion_tokens > delivered_tokens + job.choices:
        claimed = usage.completion_tokens
        return f"usage.completion_tokens: {claimed} for {delivered_tokens} delivered"
    return None


def timing_problem(timing: frames.Timing) -> str | None:
    """A duration that cannot be."""
    durations = (timing.queue_us, timing.prefill_us, timing.decode_us, timing.held_us)
    if min(durations) < 0 or max(durations) > DURATION_US_MAX:
        return f"timing: a duration is not in 0..{DURATION_US_MAX}"
    return None


def report_problem(report: frames.Report) -> str | None:
    if len(report.request) != frames.REQUEST_ID_BYTES:
        return f"report.request: must have {frames.REQUEST_ID_BYTES} bytes"
    if report.finish not in TEXT_FINISHES:
        return "report.finish: unknown reason"
    return usage_problem(report.usage) or timing_problem(report.timing)


def check_offers(models: list[ModelOffer], identity: NodeIdentity) -> None:
    allowed = identity.models
    if allowed is not None and not allowed.issuperset(offer.name for offer in models):
        raise LinkRefused(limits.CLOSE_FORBIDDEN, "hello.models: a model this node may not serve")


def check_hello(hello: Hello, identity: NodeIdentity) -> None:
    """Raises `LinkRefused`, whose reason names the field."""
    if hello.protocol != PROTOCOL_VERSION:
        reason = f"protocol {hello.protocol}, this gateway speaks {PROTOCOL_VERSION}"
        raise LinkRefused(limits.CLOSE_VERSION, reason)
    problem = hello_problem(hello)
    if problem is not None:
        raise LinkRefused(limits.CLOSE_POLICY, problem)
    if hello.node != identity.name:
        raise LinkRefused(limits.CLOSE_FORBIDDEN, "hello.node: the credential names another node")
    check_offers(hello.models, identity)
    pool = identity.pool
    if pool is not None and hello.pool != pool:
        raise LinkRefused(limits.CLOSE_FORBIDDEN, "hello.pool: the node is registered in another")
