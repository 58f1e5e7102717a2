"""The plan of a training run: how long the rows are and how fast it learns, step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from inference.train.model import ModelConfig

FULL_STEPS = 2300


@dataclass(frozen=True)
class Stage:
    """Steps of one row length, up to a share of the run, and what is mixed into their text."""

    until_share: float
    rows: int
    length: int
    long_share: float
    in_order_share: float = 0.0


STAGES = (
    Stage(until_share=0.92, rows=32, length=256, long_share=0.0),
    Stage(until_share=0.97, rows=8, length=1024, long_share=0.6, in_order_share=0.08),
    Stage(until_share=0.99, rows=4, length=2048, long_share=0.7, in_order_share=0.08),
    Stage(until_share=1.0, rows=2, length=4096, long_share=0.8, in_order_share=0.08),
)


@dataclass(frozen=True)
class Line:
    """From `start` on the rate falls straight, so that it would end at `aims_at`."""

    start: int
    aims_at: int


LINES = (Line(start=1400, aims_at=2000), Line(start=1664, aims_at=FULL_STEPS))


@dataclass(frozen=True)
class Plan:
    """Everything that decides the weights: the same plan gives the same model.

    The rate follows half a cosine made for a longer run (`horizon`) and leaves it for straight
    lines; their steps are those of the full plan.
    """

    seed: int = 5
    steps: int = FULL_STEPS
    stages: tuple[Stage, ...] = STAGES
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
        """The stage that a step belongs to."""
        for stage in self.stages:
            if step < round(stage.until_share * self.steps):
                return stage
        return self.stages[-1]

    def rate(self, step: int) -> float:
        """The learning rate: a linear warm-up, part of a half cosine, then the lines."""
        if step < self.warmup_steps:
            return self.rate_max * (step + 1) / self.warmup_steps
        rate = self.cosine(min(step, self.scaled(self.lines[0].start)))
        for line in self.lines:
            start, end = self.scaled(line.start), self.scaled(line.aims_at)
            if step < start:
                break
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
        """Where the cool-down ends."""
        return self.rate_max * self.rate_min_share
