"""What is known of one request once it has been answered, and percentiles over many."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import nan

import numpy as np

OK, LEFT, UNFINISHED = "ok", "left", "unfinished"
MS_PER_S = 1_000.0


@dataclass(slots=True)
class LoadSample:
    """A request; moments on the monotonic clock in seconds, 0 for those that never came.

    It is left after `leaves_after` events with text, if that is not 0; after each part that is read
    the reader pauses for `pause_s`.
    `gaps_s` are the times between events of a choice from the first text on, `events` counts those
    with text, `last_s` is the moment of the last of a choice,
    `code` how it ended: `ok`, `left` on purpose, `unfinished`, or what went wrong; `message` is
    what the server said of that, `request` what it calls the request, `model` the one that served,
    and `nano` what it charged, in nano-USD, where it says so.
    """

    kind: str
    planned_s: float
    leaves_after: int = 0
    pause_s: float = 0.0
    sent_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    events: int = 0
    code: str = UNFINISHED
    message: str = ""
    request: str = ""
    model: str = ""
    nano: int = 0
    gaps_s: "array[float]" = field(default_factory=lambda: array("d"))

    @property
    def ttft_s(self) -> float:
        """From the planned start to the first text."""
        return self.first_s - self.planned_s

    @property
    def total_s(self) -> float:
        return self.last_s - self.planned_s


def percentile(values: "Sequence[float] | array[float]", share: float) -> float:
    """Interpolated between ranks; `share` is 0 to 1. NaN where there are no values."""
    return float(np.quantile(values, share)) if len(values) else nan
