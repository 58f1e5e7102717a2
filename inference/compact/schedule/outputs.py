"""When a choice ends, and the outputs of a step. No torch, no clock."""

import msgspec

from inference.compact.schedule.request import Request, Sequence
from inference.contract.frames import Job, Output, Timing, Usage
from inference.contract.parts import TokenLogprob


class SampledToken(msgspec.Struct, frozen=True):
    """A token, with its log probabilities where they were asked for. `token` None: the
    model's logits were not numbers, and the choice ends with `error`.
    """

    token: int | None
    logprob: TokenLogprob | None = None


class StopRules:
    """When a choice of one model ends: its end tokens and its context."""

    def __init__(self, eos: frozenset[int], context_window: int) -> None:
        self.eos = eos
        self.context_window = context_window

    def bounded(self, job: Job) -> Job:
        """The job with no more output than its context has room for, drafts included: beyond its
        last position a model has no rotary angles.
        """
        room = self.context_window - len(job.tokens)
        if job.sampling.max_tokens <= room:
            return job
        sampling = msgspec.structs.replace(job.sampling, max_tokens=room)
        return msgspec.structs.replace(job, sampling=sampling)

    def ends(self, job: Job) -> frozenset[int]:
        """The tokens that end a choice."""
        return frozenset(job.stop_tokens) | (frozenset() if job.sampling.ignore_eos else self.eos)

    def reason(self, sequence: Sequence, token: int) -> str | None:
        """Why the sequence ends after `token`, which has been appended; None if it continues."""
        if token in sequence.request.ends:
            return "stop"
        if sequence.generated >= sequence.request.job.sampling.max_tokens:
            return "length"
        return None


def usage_of(request: Request) -> Usage:
    """Counts so far over all choices. An end token is counted in `completion_tokens`, since it
    was computed, although it is not part of any output's tokens.
    """
    return Usage(
        prompt_tokens=request.prefilled_tokens,
        cached_tokens=min(request.cached_tokens or 0, request.prefilled_tokens),
        completion_tokens=request.completion_tokens,
    )


def timing_of(request: Request, now_us: int) -> Timing:
    """Queue, prefill and decode so far: each ends where the next begins."""
    scheduled = now_us if request.scheduled_us is None else request.scheduled_us
    first_token = now_us if request.first_token_us is None else request.first_token_us
    return Timing(
        queue_us=scheduled - request.received_us,
        prefill_us=first_token - scheduled,
        decode_us=now_us - first_token,
        held_us=now_us - request.received_us,
    )


def output_of(sequence: Sequence, sampled: list[SampledToken], now_us: int) -> Output:
    """What this step made for a choice. The token that ends a choice is not part of its text."""
    request = sequence.request
    shown = told = sampled[:-1] if sequence.finish in ("stop", "error") else sampled
    if sequence.finish == "stop" and request.job.sampling.prompt_logprobs is not None:
        told = sampled
    scores, request.scores = request.scores, None
    return Output(
        request=request.job.request,
        choice=sequence.choice,
        tokens=[each.token for each in shown if each.token is not None],
        usage=usage_of(request),
        timing=timing_of(request, now_us),
        finish=sequence.finish,
        logprobs=[each.logprob for each in told if each.logprob] or None,
        prompt_logprobs=scores,
    )
