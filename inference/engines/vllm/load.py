"""The load of vLLM, from the statistics that it hands its logger after each step. No vLLM here."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from inference.contract.frames import Step
from inference.engines.base import NO_STEP, Computing, children_cpu_s, clock_us
from inference.engines.vllm.request import LiveRequest

MICROSECONDS_PER_S = 1_000_000


class LoadLogger:
    """Implements vLLM's logger; called on the event loop. `publish` gets a step without outputs and
    the share of the cache's blocks that is free, None for as before.
    """

    def __init__(self, publish: Callable[[Step, float | None], None]) -> None:
        self._publish = publish
        self._began_us = clock_us()
        self.step = NO_STEP

    def begin(self) -> None:
        """A first request has arrived: time from here on counts as work."""
        self._began_us = clock_us()

    def between_steps(self) -> Step:
        """The load as of the last step, for outputs that no step brings: they cost none."""
        return msgspec.structs.replace(
            self.step, step_us=0, preemptions=0, drafted=0, accepted=0, prefilled_tokens=0
        )

    def computing(self, live: Collection[LiveRequest]) -> Computing | None:
        """The step in progress; None while there is nothing to do.

        vLLM does not say which prompts it computes: of those that wait the first counts.
        """
        if not live:
            return None
        requests = [each.job.request for each in live if each.started]
        requests += [each.job.request for each in live if not each.started][:1]
        return Computing(requests, self._began_us / MICROSECONDS_PER_S, children_cpu_s)

    def made_by(self, _config: Any, _engine_index: int) -> LoadLogger:
        return self

    def record(self, scheduler_stats: Any, iteration_stats: Any, **_: Any) -> None:
        """A step is done; without the scheduler's figures its load is unchanged."""
        if scheduler_stats is None:
            self._publish(self.between_steps(), None)
            return
        now_us = clock_us()
        drafts, details = scheduler_stats.spec_decoding_stats, scheduler_stats.iteration_details
        step = msgspec.structs.replace(
            self.step,
            running=scheduler_stats.num_running_reqs,
            waiting=scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs,
            step_us=now_us - self._began_us,
            preemptions=iteration_stats.num_preempted_reqs if iteration_stats else 0,
            drafted=drafts.num_draft_tokens if drafts else 0,
            accepted=drafts.num_accepted_tokens if drafts else 0,
            prefilled_tokens=details.num_ctx_tokens if details else 0,
        )
        self._began_us = now_us
        self._publish(step, 1.0 - scheduler_stats.kv_cache_usage)

    def log(self) -> None:
        """vLLM's periodic log line; ours come from the control plane."""

    def log_engine_initialized(self) -> None:
        """Nothing to say."""

    def record_sleep_state(self, _is_awake: int = 0, _level: int = 0) -> None:
        """It never sleeps."""


class PromptProgress:
    """How much of the prompts that wait is computed. vLLM counts tokens, not whose they are: what
    is ahead is all of them, less the prompts that were answered or cancelled since. It is never
    more than what waits, since prompts that were preempted are computed again.
    """

    def __init__(self) -> None:
        self._ahead_tokens = 0

    def prefilled(self, tokens: int) -> None:
        """A step has computed so many prompt tokens."""
        self._ahead_tokens += tokens

    def waits_no_more(self, uncached_tokens: int) -> None:
        """A request whose prompt needed so many has its first token, or was cancelled before."""
        self._ahead_tokens = max(0, self._ahead_tokens - uncached_tokens)

    def left(self, waiting_tokens: int) -> int:
        self._ahead_tokens = min(self._ahead_tokens, waiting_tokens)
        return waiting_tokens - self._ahead_tokens
