"""One request in vLLM, and how vLLM's outputs become ours. Imports no vLLM."""

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import msgspec

from inference.contract.frames import Job, Output, Step, Timing, Usage
from inference.contract.parts import TokenLogprob

FINISHES = {"stop": "stop", "length": "length", "abort": "cancelled"}
# What an alternative without any probability is reported as: JSON has no infinity.
LOGPROB_MIN = -9999.0
US_PER_S = 1_000_000
# Scored tokens of a prompt in one frame; with all their alternatives they take a third of it.
SCORES_MAX = 4096


class LiveRequest:
    """A submitted job until its last choice has ended.

    `collector` is vLLM's queue of outputs, None until vLLM has the job. While `held_back`, outputs
    stay in it. `ended` is set when nothing more will come.
    """

    def __init__(self, job: Job, received_us: int) -> None:
        self.job = job
        self.received_us = received_us
        self.collector: Any = None
        self.deadline: asyncio.TimerHandle | None = None
        self.cancelled = False
        self.held_back = False
        self.ended = asyncio.Event()
        self.choices_open = job.sampling.n
        self._first_us: int | None = None
        self._prefill_us = 0
        self._cached = 0
        self._completion = 0
        self._scored = False

    @property
    def started(self) -> bool:
        return self._first_us is not None

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens to compute, as far as is known."""
        return len(self.job.tokens) - self._cached

    @property
    def has_output(self) -> bool:
        """Whether vLLM has made something that was not collected yet."""
        return self.collector is not None and self.collector.output is not None

    def end(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        self.ended.set()

    def collect(self, now_us: int) -> list[Output]:
        """What vLLM has made since the last call; raises what vLLM put there instead."""
        if self.collector is None or self.held_back:
            return []
        made = self.collector.get_nowait()
        if made is None:
            return []
        if self._first_us is None:
            self._first_us = now_us
            self._cached = made.num_cached_tokens or 0
            self._prefill_us = min(_prefill_us(made.metrics), now_us - self.received_us)
        bare = not self.job.sampling.max_tokens
        if not bare:
            self._completion += sum(len(each.token_ids) for each in made.outputs)
        begun = self._completion or bare
        usage = Usage(
            prompt_tokens=len(self.job.tokens) if begun else 0,
            cached_tokens=self._cached if begun else 0,
            completion_tokens=self._completion,
        )
        timing = self._timing(now_us, self._first_us)
        outputs = [self._output(each, usage, timing) for each in made.outputs]
        scores = self._scores(made.prompt_logprobs)
        # The first choice has them, whichever is the first to say something.
        if scores:
            first = msgspec.structs.replace(
                outputs[0], choice=0, tokens=[], finish=None, logprobs=None, prompt_logprobs=scores
            )
            outputs.insert(0, first)
        return outputs

    def _scores(self, made: Any) -> list[TokenLogprob]:
        """Of the prompt, once; nothing comes before its first token."""
        most = self.job.sampling.prompt_logprobs
        if most is None or self._scored or not made:
            return []
        self._scored = True
        pairs = zip(self.job.tokens[1:], made[1:], strict=False)
        return [_logprob(token, table, most) for token, table in pairs]

    def _output(self, made: Any, usage: Usage, timing: Timing) -> Output:
        finish = None
        sampling, told = self.job.sampling, list(made.token_ids)
        if made.finish_reason is not None:
            finish = FINISHES.get(made.finish_reason, "error")
            self.choices_open -= 1
        # The token that ends a choice is counted, but is not part of its text.
        tokens = told[: max(len(told) - (finish == "stop"), 0)]
        if sampling.prompt_logprobs is None:
            told = tokens
        if not sampling.max_tokens:
            # vLLM makes one token at least.
            tokens, told, finish = [], [], "length" if finish == "stop" else finish
        logprobs = None
        if sampling.logprobs is not None and told:
            pairs = zip(told, made.logprobs, strict=False)
            logprobs = [_logprob(token, table, sampling.logprobs) for token, table in pairs]
        return Output(
            request=self.job.request,
            choice=made.index,
            tokens=tokens,
            usage=usage,
            timing=timing,
            finish=finish,
            logprobs=logprobs,
        )

    def _timing(self, now_us: int, first_us: int) -> Timing:
        """The prefill as vLLM measured it; what came before is queue, what comes after decode."""
        return Timing(
            queue_us=first_us - self.received_us - self._prefill_us,
            prefill_us=self._prefill_us,
            decode_us=now_us - first_us,
            held_us=now_us - self.received_us,
        )


def paged(step: Step) -> Iterator[Step]:
    """The step, behind as many as the scores of prompts in it need, each within a frame."""
    outputs = []
    for output in step.outputs:
        scores = output.prompt_logprobs
        if scores is None:
            outputs.append(output)
            continue
        for begin in range(0, len(scores), SCORES_MAX):
            page = scores[begin : begin + SCORES_MAX]
            part = msgspec.structs.replace(output, prompt_logprobs=page)
            yield msgspec.structs.replace(
                step, outputs=[part], step_us=0, prefilled_tokens=0, drafted=0, accepted=0,
                preemptions=0,
            )  # fmt: skip
    yield msgspec.structs.replace(step, outputs=outputs)


def _prefill_us(metrics: Any) -> int:
    """From being scheduled to the first token, by the clock of vLLM's process."""
    if metrics is None or not metrics.scheduled_ts or not metrics.first_token_ts:
        return 0
    prefill_s: float = metrics.first_token_ts - metrics.scheduled_ts
    return max(round(prefill_s * US_PER_S), 0)


def _logprob(token: int, table: Any, most: int) -> TokenLogprob:
    """vLLM lists the likeliest tokens and the chosen one, which may not be among them."""
    ranked = sorted((each for each in table.items()), key=lambda each: each[1].rank)
    top = [(other, _finite(each.logprob)) for other, each in ranked if each.rank <= most]
    return TokenLogprob(token=token, logprob=_finite(table[token].logprob), top=top[:most])


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LOGPROB_MIN
