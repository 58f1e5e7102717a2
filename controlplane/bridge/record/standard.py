"""OpenTelemetry's histograms of generative models, counted request by request: their buckets and
attributes are fixed by its conventions, so no series of ours can be turned into them.

All are measured in the gateway: from a request's arrival until the last byte was given to the
client's socket.
"""

from bisect import bisect_left
from collections.abc import Sequence

from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.statuses import FAILED_FROM

DURATION_BOUNDS_S = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
FIRST_TOKEN_BOUNDS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
PER_TOKEN_BOUNDS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
)  # fmt: skip
TOKEN_BOUNDS = tuple(4**power for power in range(14))
US_PER_S = 1_000_000
OTHER = "other"
LABEL_SETS_MAX = 36
# The word of its conventions for an error that has no name of its own.
OTHER_ERROR = "_OTHER"
INPUT, OUTPUT = "input", "output"
# Of what shares `other`: what succeeded is not what failed, and no input is an output.
KEPT_APART = frozenset({"", INPUT, OUTPUT})

Key = tuple[str, str, str]


class Classic:
    """Histograms with fixed bounds by (operation, model, a third attribute or nothing).

    `counts` of a key has one more than `bounds`; the last is the sum of all values, `scale` of
    which make one of the bounds' unit.
    """

    def __init__(self, bounds: Sequence[float], scale: int) -> None:
        self.bounds = bounds
        self.scale = scale
        self.rows: dict[Key, list[int]] = {}
        self.folded = 0
        # Values are integers, so what is above a bound is above the integer below it.
        self._marks = [int(bound * scale) for bound in bounds]

    def add(self, key: Key, values: Sequence[int]) -> None:
        if not values:
            return
        row = self.rows.get(key)
        if row is None:
            row = self._make(key, len(values))
        for value in values:
            row[bisect_left(self._marks, value)] += 1
        row[-1] += sum(values)

    def _make(self, key: Key, values: int) -> list[int]:
        if len(self.rows) >= LABEL_SETS_MAX:
            self.folded += values
            key = (OTHER, OTHER, key[2] if key[2] in KEPT_APART else OTHER_ERROR)
        return self.rows.setdefault(key, [0] * (len(self.bounds) + 2))


class Standard:
    """The four that OpenTelemetry names."""

    def __init__(self) -> None:
        self.duration = Classic(DURATION_BOUNDS_S, US_PER_S)
        self.first_token = Classic(FIRST_TOKEN_BOUNDS_S, US_PER_S)
        self.per_token = Classic(PER_TOKEN_BOUNDS_S, US_PER_S)
        self.tokens = Classic(TOKEN_BOUNDS, 1)

    @property
    def folded(self) -> int:
        return sum(
            each.folded for each in (self.duration, self.first_token, self.per_token, self.tokens)
        )

    def count(self, alike: Sequence[FinishedRequest], model: str) -> None:
        """Count requests of one operation and status, under this label for their model."""
        operation, status = alike[0].operation, alike[0].status
        failed = status >= FAILED_FROM
        key = (operation, model, "")
        error = str(status) if failed else ""
        self.duration.add((operation, model, error), [r.total_us for r in alike])
        self.first_token.add(key, [r.ttft_us for r in alike if r.ttft_us >= 0])
        prompts = [r.prompt_tokens for r in alike if r.prompt_tokens]
        outputs = [r.output_tokens for r in alike if r.output_tokens]
        self.tokens.add((operation, model, INPUT), prompts)
        self.tokens.add((operation, model, OUTPUT), outputs)
        if not failed:
            paced = [r for r in alike if r.output_tokens > 1 and r.inter_token_us]
            means = [sum(r.inter_token_us) // (r.output_tokens - 1) for r in paced]
            self.per_token.add(key, means)
