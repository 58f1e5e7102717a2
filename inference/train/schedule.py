"""The plan of a training run: how long the rows are and how fast it learns, step by step."""

import math
from dataclasses import dataclass, replace

from inference.train.model import ModelConfig

FULL_STEPS = 2600


@dataclass(frozen=True)
class Stage:
    """Steps of one row length, up to a step of the full plan, and what is mixed into their text."""

    until: int
    rows: int
    length: int
    long_share: float
    in_order_share: float = 0.0


STAGES = (
    Stage(until=2116, rows=32, length=256, long_share=0.0),
    Stage(until=2231, rows=8, length=1024, long_share=0.6, in_order_share=0.08),
    Stage(until=2277, rows=4, length=2048, long_share=0.7, in_order_share=0.08),
    Stage(until=2300, rows=2, length=4096, long_share=0.8, in_order_share=0.08),
)

SHORT = Stage(until=FULL_STEPS, rows=32, length=256, long_share=0.0, in_order_share=0.01)
MIXED = (SHORT, SHORT, SHORT, replace(STAGES[1], until=FULL_STEPS)) * 3 + (
    SHORT,
    SHORT,
    SHORT,
    replace(STAGES[3], until=FULL_STEPS),
)
"""The stages that take turns at the end: long rows alone make the model forget short prompts."""


@dataclass(frozen=True)
class Line:
    """From `start` on the rate falls straight, so that it would end at `aims_at`.

    It starts where the rate is, or at `rate` when one is given.
    """

    start: int
    aims_at: int
    rate: float | None = None


LINES = (
    Line(start=1400, aims_at=2000),
    Line(start=1664, aims_at=2300),
    Line(start=2300, aims_at=FULL_STEPS, rate=4e-4),
)


@dataclass(frozen=True)
class Plan:
    """Everything that decides the weights: the same plan gives the same model.

    The rate follows half a cosine made for a longer run (`horizon`) and leaves it for straight
    lines; their steps are those of the full plan.
    """

    seed: int = 5
    steps: int = FULL_STEPS
    stages: tuple[Stage, ...] = STAGES
    mixed: tuple[Stage, ...] = MIXED
    rate_max: float = 2e-3
    rate_min_share: float = 0.02
    warmup_steps: int = 100
    horizon: int = 2800
    lines: tuple[Line, ...] = LINES
    weight_decay: float = 0.1
    gradient_norm_max: float = 1.0
    tokenizer_dialogues: int = 60_000
    model: ModelConfig = ModelConfig()

    def stage(self, step: int) -> Stage:
        for stage in self.stages:
            if step < self.scaled(stage.until):
                return stage
        return self.mixed[step % len(self.mixed)]

    def rate(self, step: int) -> float:
        """The learning rate: a linear warm-up, part of a half cosine, then the lines."""
        if step < self.warmup_steps:
            return self.rate_max * (step + 1) / self.warmup_steps
        rate = self.cosine(min(step, self.scaled(self.lines[0].start)))
        for line in self.lines:
            start, end = self.scaled(line.start), self.scaled(line.aims_at)
            if step < start:
                break
            rate = rate if line.rate is None else line.rate
            left = (end - min(step, self.next_start(line))) / (end - start)
            rate = self.rate_min + (rate - self.rate_min) * left
        return rate

    def next_start(self, line: Line) -> int:
        """Where the next line takes over, or the end."""
        later = [self.scaled(one.start) for one in self.lines if one.start > line.start]
        return min(later, default=self.steps)

    def cosine(self, step: int) -> float:
        """Half a cosine from the highest rate to the lowest, over the horizon."""
        horizon = self.scaled(self.horizon)
        done = (step - self.warmup_steps) / max(1, horizon - self.warmup_steps)
        return self.rate_min + (self.rate_max - self.rate_min) * 0.5 * (
            1 + math.cos(math.pi * done)
        )

    def scaled(self, step: int) -> int:
        """A step of the full plan as a step of this one, which may be shorter."""
        return round(step * self.steps / FULL_STEPS)

    @property
    def rate_min(self) -> float:
        return self.rate_max * self.rate_min_share
