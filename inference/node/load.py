"""The load that a gateway is sent: the engine's last step, and the jobs of other gateways."""

from collections.abc import Sequence

import msgspec

from inference.contract.frames import Processing, Step
from inference.node.jobs import JobTable


class Load:
    """The load after the last step, and what has arrived since."""

    def __init__(self, jobs: JobTable) -> None:
        self._jobs = jobs
        self._step: Step | None = None
        self._arrived_tokens = 0

    def stepped(self, step: Step) -> None:
        self._step, self._arrived_tokens = step, 0

    def arrived(self, tokens: int) -> None:
        self._arrived_tokens += tokens

    def between_steps(self, processing: Sequence[Processing] = ()) -> Step | None:
        """The load now, as a step without outputs; None before the first.

        `processing` are the jobs of a step that computes.
        """
        if self._step is None:
            return None
        waiting = self._step.waiting_tokens + self._arrived_tokens
        return msgspec.structs.replace(
            self._step, outputs=[], waiting_tokens=waiting, step_us=0, preemptions=0,
            prefilled_tokens=0, drafted=0, accepted=0, processing=list(processing),
            computing_ms=max((each.silent_ms for each in processing), default=0),
        )  # fmt: skip

    def for_gateway(self, step: Step, owner: str) -> Step:
        """The step with the load of all other gateways, lost jobs included."""
        if step.processing:
            own = [each for each in step.processing if self._jobs.owned_by(each.request, owner)]
            step = msgspec.structs.replace(step, processing=own)
        active, tokens = self._jobs.others(owner)
        if not active:
            return step
        # How much of a prompt is cached is the engine's to know: its figure is divided as prompts.
        queued = step.waiting_tokens * tokens // max(1, self._jobs.queued_tokens)
        return msgspec.structs.replace(step, others_active=active, others_queued_tokens=queued)
