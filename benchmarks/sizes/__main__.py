"""`make size-weights`: train the size classifier on text of its own, tell its errors and its time.

Not covered: real traffic. The tables say how well it tells apart what `texts.py` calls small,
medium and large; a shadow of a rule says what it does with yours.
"""

from __future__ import annotations

import argparse
import json
import sys

import msgspec
import numpy as np

from benchmarks.sizes.texts import Maker, SizedAsk
from benchmarks.sizes.timing import plan_us
from benchmarks.sizes.training import confusion, train
from controlplane.kernel.rules import SIZE_CLASSES
from controlplane.kernel.sizing.classifier import WEIGHTS, SizeWeights

SEED = 20
TRAINED, HELD_OUT = 12_000, 6_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="write the weights into the product")
    options = parser.parse_args()
    weights = train(Maker(SEED).make(TRAINED))
    if options.keep:
        WEIGHTS.write_text(lines(weights))
    held = Maker(SEED, held_out=True).make(HELD_OUT)
    unseen = Maker(SEED, unseen=True).make(HELD_OUT)
    for name, asks in (("Phrasings held out", held), ("Kinds never trained on", unseen)):
        print_table(name, confusion(weights, asks))
        print_kinds(weights, asks)
    for name, us in plan_us(held).items():
        print(f"A plan {name}, in us: {us}")
    return 0


def lines(weights: SizeWeights) -> str:
    """JSON with a line for each feature."""
    plain = msgspec.to_builtins(weights)
    rows = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in plain["weights"].items()
    )
    bias, means = json.dumps(plain["bias"]), json.dumps(plain["means"])
    return f'{{\n "bias": {bias},\n "weights": {{\n{rows}\n }},\n "means": {means}\n}}\n'


def print_table(name: str, table: np.ndarray) -> None:
    """As it stands in docs/routing.md."""
    right = np.trace(table) / table.sum()
    below = np.tril(table, -1).sum() / table.sum()
    print(f"\n{name}: {right:.1%} right, {below:.1%} chosen too small\n")
    print(f"| needs | {' | '.join(f'chosen {each}' for each in SIZE_CLASSES)} |")
    print("|---|--:|--:|--:|")
    for needs, row in zip(SIZE_CLASSES, table, strict=True):
        print(f"| {needs} | " + " | ".join(map(str, row)) + " |")


def print_kinds(weights: SizeWeights, asks: list[SizedAsk]) -> None:
    """The kinds by how often they are chosen wrongly, worst first."""
    kinds = {ask.kind for ask in asks}
    tables = {kind: confusion(weights, [ask for ask in asks if ask.kind == kind]) for kind in kinds}
    wrong = {kind: 1 - np.trace(table) / table.sum() for kind, table in tables.items()}
    told = [f"{kind} {wrong[kind]:.0%}" for kind in sorted(kinds, key=lambda kind: -wrong[kind])]
    print("Wrong by kind: " + ", ".join(told))


if __name__ == "__main__":
    sys.exit(main())
