"""Rows of one request's waterfall: every stage and layer at its true time. Pure arithmetic.

A layer that ran once per token adds up: its bar starts at the first run and is as long as all runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from controlplane.kernel.receipt import NONE, Receipt
from controlplane.kernel.spans import ABSENT, SPANS, STAGES
from frontend.requests.causes import Usual
from frontend.shared.stages import LABELS

BEFORE = "s1_admission.arrival"
LINE = "client_rtt"
# What a model thinks before its answer: a part of its decoding, and no layer.
DECODE, THINKING = "s5_infer.decode", "s5_infer.thinking"
# A bar thinner than this share of the drawing could not be seen.
WIDTH_LEAST = 0.4
HUNDRED = 100.0


@dataclass(frozen=True)
class Bar:
    """One row. `left` and `width` are per cent of the drawing; `stage` is 1 to 7, 0 for none."""

    name: str
    what: str
    stage: int
    is_stage: bool
    outside: bool
    start_us: int | None
    duration_us: int | None
    left: float
    width: float
    usual: Usual | None = None

    @property
    def short(self) -> str:
        stage, _, layer = self.name.partition(".")
        return layer or LABELS[stage]


@dataclass(frozen=True)
class Waterfall:
    """All rows, and what they add up to.

    `line` is a round trip on the client's connection, drawn to scale from arrival: it is in no
    stage and not in the total.
    """

    bars: list[Bar]
    line: Bar
    first_us: int
    last_us: int
    total_us: int
    before_us: int | None
    unattributed_us: int
    first_token_at: float | None

    @property
    def layers_run(self) -> int:
        ran = (bar for bar in self.bars if not bar.is_stage and bar.start_us is not None)
        return sum(bar.name != THINKING for bar in ran)

    def find(self, name: str) -> int | None:
        """Duration of a span by its full name."""
        return next((bar.duration_us for bar in self.bars if bar.name == name), None)


def make_waterfall(
    times: list[tuple[int, int]],
    total_us: int,
    ttft_us: int,
    rtt_us: int | None = None,
    receipt: Receipt = NONE,
) -> Waterfall:
    """Rows from a recorded request's (start, duration) pairs, in the order of `SPANS`; one more
    where its receipt says that the model thought.
    """
    ran = {span.name: pair for span, pair in zip(SPANS, times, strict=False) if pair[0] != ABSENT}
    first = min([0, *(start for start, _ in ran.values())])
    last = max([total_us, 1, *(start + length for start, length in ran.values())])
    numbers = {stage: number for number, (stage, _, _) in enumerate(STAGES, start=1)}
    bars = []
    for span in SPANS:
        start, length = ran.get(span.name, (None, None))
        left, width = _place(start, length, first, last)
        bars.append(
            Bar(
                name=span.name,
                what=span.what,
                stage=0 if span.name == BEFORE else numbers[span.stage],
                is_stage=not span.layer,
                outside=span.name == BEFORE,
                start_us=start,
                duration_us=length,
                left=left,
                width=width,
            )
        )
        if span.name == DECODE and (began := receipt.first_thought_us):
            lasted = max(0, (receipt.first_answer_us or last) - began)
            place = _place(began, lasted, first, last)
            what = "thoughts before the answer, while tokens are decoded"
            stage = numbers[span.stage]
            bars.append(Bar(THINKING, what, stage, False, False, began, lasted, *place))
    before = ran.get(BEFORE)
    inside = sum(ran[stage][1] for stage in numbers if stage in ran)
    return Waterfall(
        bars=bars,
        line=_line(rtt_us, first, last),
        first_us=first,
        last_us=last,
        total_us=total_us,
        before_us=before[1] if before else None,
        unattributed_us=max(0, total_us - inside),
        first_token_at=_place(ttft_us, 0, first, last)[0] if ttft_us >= 0 else None,
    )


def beside(waterfall: Waterfall, usual: Mapping[str, Usual]) -> Waterfall:
    """The same, each row with what is usual for its span."""
    bars = [replace(bar, usual=usual.get(bar.name)) for bar in waterfall.bars]
    return replace(waterfall, bars=bars)


def _line(rtt_us: int | None, first: int, last: int) -> Bar:
    start = None if rtt_us is None else 0
    left, width = _place(start, rtt_us, first, last)
    what = "one round trip on the connection, smoothed by the kernel; not part of any stage"
    return Bar(LINE, what, 0, False, True, start, rtt_us, left, width)


def _place(start: int | None, length: int | None, first: int, last: int) -> tuple[float, float]:
    if start is None or length is None:
        return 0.0, 0.0
    span = last - first
    width = max(WIDTH_LEAST, HUNDRED * length / span)
    left = min(HUNDRED * (start - first) / span, HUNDRED - WIDTH_LEAST)
    return round(left, 3), round(min(width, HUNDRED - left), 3)
