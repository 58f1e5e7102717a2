"""Checks of a job that every engine makes before it takes it; raises `JobRefused`."""

import math
from collections.abc import Collection

from inference.contract import frames
from inference.contract.capabilities import Capability
from inference.contract.grammar import GRAMMAR_BYTES_MAX, GRAMMAR_KINDS, Grammar
from inference.engines.base import EngineFacts
from inference.errors import JobRefused

TEMPERATURE_MAX = 100.0
REPETITION_MIN = 1e-6
# The ids that the wire can carry; a model that we do not know has fewer.
TOKEN_IDS = 2**31
# A `Sampling` that asks for nothing, and what an engine needs for any other value of a field.
# `priority`, `salt` and `deadline_ms` are missing here: to be without them changes no answer.
NEUTRAL = frames.Sampling(max_tokens=1)
NEEDS = {
    name: Capability(name) for name in frames.Sampling.__struct_fields__ if name != "max_tokens"
}


def check_common(job: frames.Job, facts: EngineFacts) -> None:
    """What no engine takes, whatever its jobs are made of."""
    if job.model != facts.model and job.model not in facts.adapters:
        raise JobRefused("unknown_model", f"model: this node serves {facts.model!r}")
    if job.deadline_ms < 1:
        raise JobRefused("bad_job", "deadline_ms: must be at least 1")


def check_job(job: frames.Job, facts: EngineFacts) -> None:
    """Refuse what the engine could not compute; the message names the field."""
    check_common(job, facts)
    if job.inputs:
        raise JobRefused("bad_job", f"inputs: {facts.engine} does not embed")
    if not job.tokens:
        raise JobRefused("bad_job", "tokens: the prompt is empty")
    if min(job.tokens) < 0 or max(job.tokens) >= facts.vocab_size:
        raise JobRefused("bad_job", f"tokens: ids must lie in 0..{facts.vocab_size - 1}")
    if len(job.tokens) >= facts.context_window:
        raise JobRefused(
            "too_long", f"tokens: {len(job.tokens)} leave no room in {facts.context_window}"
        )
    _check_sampling(job.sampling, facts.vocab_size)
    _check_capabilities(job, facts)
    _check_pool(job, facts)


def check_room(request: bytes, held: Collection[bytes], facts: EngineFacts) -> None:
    """Refuse a request that is held already, or one more than there are credits.

    The prompts of one request (`node.prompts`) count as one, since it has one credit.
    """
    if request in held:
        raise JobRefused("bad_job", "request: this id is already being served")
    if len(held) < facts.credits:
        return
    others = {each[: frames.REQUEST_ID_BYTES] for each in held} - {
        request[: frames.REQUEST_ID_BYTES]
    }
    if len(others) >= facts.credits:
        raise JobRefused("full", f"all {facts.credits} credits are in use")


def check_text_job(job: frames.Job, facts: EngineFacts) -> None:
    """The same for an engine that takes the request itself; its tokens and pool are not known."""
    check_common(job, facts)
    if not job.request_json:
        raise JobRefused("bad_job", "request_json: is empty; this node takes no token ids")
    pictures = sum(len(each.jpeg) for each in job.pictures)
    if len(job.request_json) + pictures > frames.REQUEST_JSON_BYTES_MAX:
        raise JobRefused("too_long", f"request_json: is over {frames.REQUEST_JSON_BYTES_MAX} bytes")
    _check_sampling(job.sampling, TOKEN_IDS)
    _check_capabilities(job, facts)


def _check_sampling(sampling: frames.Sampling, vocab_size: int) -> None:
    ranges = (
        ("max_tokens", sampling.max_tokens, int(sampling.prompt_logprobs is None), math.inf),
        ("min_tokens", sampling.min_tokens, 0, math.inf),
        ("n", sampling.n, 1, frames.CHOICES_MAX),
        ("temperature", sampling.temperature, 0.0, TEMPERATURE_MAX),
        ("top_p", sampling.top_p, 0.0, 1.0),
        ("top_k", sampling.top_k, 0, math.inf),
        ("min_p", sampling.min_p, 0.0, 1.0),
        ("logprobs", sampling.logprobs or 0, 0, frames.LOGPROBS_MAX),
        ("prompt_logprobs", sampling.prompt_logprobs or 0, 0, frames.LOGPROBS_MAX),
        ("repetition_penalty", sampling.repetition_penalty, REPETITION_MIN, 1 / REPETITION_MIN),
    )
    for field, value, low, high in ranges:
        if not low <= value <= high:
            raise JobRefused("bad_job", f"sampling.{field}: {value} is outside {low}..{high}")
    for field in ("frequency_penalty", "presence_penalty"):
        if not math.isfinite(getattr(sampling, field)):
            raise JobRefused("bad_job", f"sampling.{field}: must be a finite number")
    if sampling.grammar is not None:
        _check_grammar(sampling.grammar, sampling)
    for token, bias in sampling.logit_bias.items():
        if not 0 <= token < vocab_size or not math.isfinite(bias):
            raise JobRefused("bad_job", f"sampling.logit_bias: bad entry for token {token}")


def _check_grammar(grammar: Grammar, sampling: frames.Sampling) -> None:
    if grammar.kind not in GRAMMAR_KINDS:
        raise JobRefused("bad_job", f"sampling.grammar.kind: {grammar.kind!r} is unknown")
    if len(grammar.source.encode()) > GRAMMAR_BYTES_MAX:
        raise JobRefused("bad_job", f"sampling.grammar.source: over {GRAMMAR_BYTES_MAX} bytes")
    if sampling.ignore_eos:
        raise JobRefused("bad_job", "sampling.ignore_eos: a grammar says where the output ends")


def _check_capabilities(job: frames.Job, facts: EngineFacts) -> None:
    """A field that the engine would have to pass over in silence is refused instead."""
    if job.pictures and Capability.VISION not in facts.capabilities:
        raise JobRefused("bad_job", f"pictures: the {facts.engine} engine has none")
    if job.stop_tokens and Capability.STOP_TOKENS not in facts.capabilities:
        raise JobRefused("bad_job", f"stop_tokens: the {facts.engine} engine has none")
    for field, needed in NEEDS.items():
        value = getattr(job.sampling, field)
        asks = value != getattr(NEUTRAL, field) and (field, value) != ("temperature", 0.0)
        if asks and needed not in facts.capabilities:
            raise JobRefused("bad_job", f"sampling.{field}: the {facts.engine} engine has none")


def _check_pool(job: frames.Job, facts: EngineFacts) -> None:
    """One request alone must fit the pool, or it could never finish."""
    longest = min(len(job.tokens) + job.sampling.max_tokens, facts.context_window)
    if longest > facts.kv_blocks * facts.block_size:
        room = facts.kv_blocks * facts.block_size
        raise JobRefused("too_long", f"tokens: up to {longest} are needed, the cache holds {room}")
