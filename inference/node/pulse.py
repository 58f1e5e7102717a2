"""Which jobs a long step works on, said as long as it computes.

Without reports an engine in a long step looks like one that hangs, and would lose its links.
"""

from inference.contract.frames import Processing
from inference.engines.base import Engine

PULSE_S = 0.5
# Of one CPU, between two looks. Even on a busy machine what computes gets more, and what hangs has
# nearly none.
COMPUTING_SHARE_MIN = 0.02
MILLISECONDS_PER_S = 1000


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
        return [Processing(request=request, silent_ms=silent_ms) for request in step.requests]
