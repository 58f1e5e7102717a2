"""Multinomial logistic regression by full gradient descent with momentum: the same every time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.sizes.texts import SizedAsk
from controlplane.kernel.rules import SIZE_CLASSES
from controlplane.kernel.sizing.classifier import SizeClassifier, SizeWeights
from controlplane.kernel.sizing.features import FEATURES, features_of

STEPS = 3_000
RATE = 0.1
MOMENTUM = 0.9
# Keeps weights of features that rarely occur small.
DECAY = 1e-3
DIGITS = 4


def train(asks: Sequence[SizedAsk]) -> SizeWeights:
    """Weights for the plain values: training scales them to a deviation of one, and back."""
    values = np.array([features_of(ask.shape) for ask in asks])
    labels = np.eye(len(SIZE_CLASSES))[[SIZE_CLASSES.index(ask.size_class) for ask in asks]]
    means, deviations = values.mean(0), values.std(0) + 1e-9
    scaled = np.hstack([(values - means) / deviations, np.ones((len(values), 1))])
    weights = np.zeros((scaled.shape[1], len(SIZE_CLASSES)))
    speed = np.zeros_like(weights)
    for _ in range(STEPS):
        scores = np.exp(scaled @ weights)
        shares = scores / scores.sum(1, keepdims=True)
        slope = scaled.T @ (shares - labels) / len(values) + DECAY * weights
        speed = MOMENTUM * speed - RATE * slope
        weights += speed
    plain = weights[:-1] / deviations[:, None]
    bias = weights[-1] - means @ plain
    names = [each.name for each in FEATURES]
    return SizeWeights(
        bias=_rounded(bias),
        weights={name: _rounded(row) for name, row in zip(names, plain, strict=True)},
        means={name: round(float(mean), DIGITS) for name, mean in zip(names, means, strict=True)},
    )


def confusion(weights: SizeWeights, asks: Sequence[SizedAsk]) -> np.ndarray:
    """Counts by the size class that is needed (rows) and the one that was chosen (columns)."""
    classifier, table = SizeClassifier(weights), np.zeros((3, 3), dtype=int)
    for ask in asks:
        chosen = classifier.classify(ask.shape).size_class
        table[SIZE_CLASSES.index(ask.size_class), SIZE_CLASSES.index(chosen)] += 1
    return table


def _rounded(row: np.ndarray) -> tuple[float, float, float]:
    small, medium, large = (round(float(each), DIGITS) for each in row)
    return small, medium, large
