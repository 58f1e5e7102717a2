"""The size classifier: a linear model over features (multinomial logistic regression), its weights
in `weights.json`, made by `python -m benchmarks.sizes` on text of its own.
"""

from itertools import accumulate
from math import exp
from pathlib import Path
from typing import NamedTuple

import msgspec

from controlplane.kernel.rules import SIZE_CLASSES, SizeClass
from controlplane.kernel.sizing.features import FEATURES, AskShape, features_of, told

REASONS_MAX = 3
# A class is chosen where it or a smaller one is enough with this probability: an answer from too
# small a model costs more than one from too large a model.
ENOUGH = 0.65
WEIGHTS = Path(__file__).with_name("weights.json")


class SizeWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For each size class, in their order, a bias and a weight for each feature by name.

    `means` are what features were on average in training, to tell what is unusual of a request.
    """

    bias: tuple[float, float, float]
    weights: dict[str, tuple[float, float, float]]
    means: dict[str, float]


class SizeVerdict(NamedTuple):
    """The smallest size class that is likely enough, how likely just it is, and the features that
    set it apart most.
    """

    size_class: SizeClass
    probability: float
    why: tuple[str, ...]


class SizeClassifier:
    """Made once; asked once per request."""

    __slots__ = ("_columns", "_means")

    def __init__(self, weights: SizeWeights) -> None:
        """Raises KeyError for weights of other features."""
        rows = [weights.weights[each.name] for each in FEATURES]
        self._columns = [
            (bias, [row[place] for row in rows]) for place, bias in enumerate(weights.bias)
        ]
        self._means = [weights.means[each.name] for each in FEATURES]

    def classify(self, shape: AskShape) -> SizeVerdict:
        values = features_of(shape)
        scores = [
            bias + sum([weight * value for weight, value in zip(column, values, strict=True)])
            for bias, column in self._columns
        ]
        top = max(scores)
        odds = [exp(score - top) for score in scores]
        shares = [each / sum(odds) for each in odds]
        enough = [share >= ENOUGH for share in accumulate(shares[:-1])]
        chosen = enough.index(True) if any(enough) else len(enough)
        why = told(shape, values, self._reasons(chosen, values))
        return SizeVerdict(SIZE_CLASSES[chosen], shares[chosen], why)

    def _reasons(self, chosen: int, values: tuple[float, ...]) -> list[int]:
        """Places of the features it has that speak most for this class against the others."""
        ours, *others = (self._columns[(chosen + step) % 3][1] for step in range(3))
        pulls = [
            ((mine - (one + two) / 2) * (value - mean), place)
            for place, (mine, one, two, value, mean) in enumerate(
                zip(ours, *others, values, self._means, strict=True)
            )
            if value
        ]
        return [place for pull, place in sorted(pulls, reverse=True)[:REASONS_MAX] if pull > 0]


CLASSIFIER = SizeClassifier(msgspec.json.decode(WEIGHTS.read_bytes(), type=SizeWeights))
