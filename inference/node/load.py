"""The load that a gateway is sent: the engine's last step, the jobs of other gateways, and which
jobs a long step works on.

Without such reports an engine in a long step looks like one that hangs, and would lose its links.
"""

from collections.abc import Sequence

import msgspec

from inference.contract.frames import REQUEST_ID_BYTES, Processing, Step
from inference.engines.base import Engine
from inference.node.jobs import JobTable

PULSE_S = 0.5
# Of one CPU, between two looks. Even on a busy machine what computes gets more, and what hangs has
# nearly none.
COMPUTING_SHARE_MIN = 0.02
MILLISECONDS_PER_S = 1000


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


class Pulse:
    """Looks at an engine's step now and then."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._looked_s = 0.0
        # When the step began that was in progress at the last look, and its CPU seconds then.
        self._seen: tuple[float, float] | None = None

    def look(self, now_s: float) -> list[Processing]:
        """The jobs of a step that lasts for a while and has computed since the last look.

        How long a step may last is for the gateway to judge, by `silent_ms`.
        """
        since_s = now_s - self._looked_s
        if since_s < PULSE_S:
            return []
        self._looked_s = now_s
        before, self._seen = self._seen, None
        step = self._engine.computing()
        if step is None or now_s - step.began_s < PULSE_S:
            return []
        self._seen = step.began_s, step.cpu_s()
        if before is None or before[0] != step.began_s:
            return []
        if self._seen[1] - before[1] < COMPUTING_SHARE_MIN * since_s:
            return []
        silent_ms = round((now_s - step.began_s) * MILLISECONDS_PER_S)
        jobs = {request[:REQUEST_ID_BYTES] for request in step.requests}
        return [Processing(request=request, silent_ms=silent_ms) for request in jobs]
