"""What a plan takes with size classes and without, for the same requests in one process."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns

import msgspec
import numpy as np

from benchmarks.sizes.texts import SizedAsk
from controlplane.gateway.ask import Ask, Turn
from controlplane.gateway.plan import make_plan
from controlplane.gateway.sizing import SizeMemory
from controlplane.gateway.snapshot import Snapshot
from controlplane.kernel.ids import new_request_id
from controlplane.kernel.rules import SIZE_CLASSES, RouteRule, Step, Target
from inference.contract.frames import BYTES_PER_TOKEN
from tests.support.ports import make_key, make_snapshot

PERCENTILES = (50, 95, 99, 99.9)
WARM_UP = 500
HISTORY_CHARS_MAX = 4_000
CLASSES = tuple(Target(model=each, size_class=each) for each in SIZE_CLASSES)
RULES = {
    "with size classes": RouteRule(name="r", steps=(Step(targets=CLASSES),)),
    "without": RouteRule(name="r", steps=(Step(targets=(Target(model="large"),)),)),
}


def plan_us(asks: Sequence[SizedAsk]) -> dict[str, dict[str, float]]:
    """Percentiles of a plan's time in microseconds, by the kind of its rule."""
    requests = [_request(ask) for ask in asks]
    return {name: _measured(requests, _snapshot(rule)) for name, rule in RULES.items()}


def _measured(requests: Sequence[Ask], snapshot: Snapshot) -> dict[str, float]:
    key, memory, taken = make_key(), SizeMemory(), []
    for ask in [*requests[:WARM_UP], *requests]:
        request = new_request_id()
        began = perf_counter_ns()
        plan = make_plan(request, ask, key, snapshot, memory)
        taken.append((perf_counter_ns() - began) / 1_000)
        if plan.sized is not None:
            memory.note(plan.sized.digest, plan.sized.choice.served)
    found = np.percentile(taken[WARM_UP:], PERCENTILES)
    return {f"p{each}": round(float(us), 1) for each, us in zip(PERCENTILES, found, strict=True)}


def _request(ask: SizedAsk) -> Ask:
    """With a history as long as its size says, up to what a turn of a chat has."""
    shape = ask.shape
    share = min(HISTORY_CHARS_MAX, BYTES_PER_TOKEN * shape.prompt_tokens // shape.turns)
    said = "word " * (share // 5)
    turns = [Turn("user" if n % 2 else "assistant", said) for n in range(1, shape.turns)]
    return Ask(
        operation="chat",
        model="auto",
        bytes=BYTES_PER_TOKEN * shape.prompt_tokens,
        turns=(*turns, Turn("user", shape.question)),
        tools=({},) * shape.tools,
        output_tokens=shape.output_tokens,
    )


def _snapshot(rule: RouteRule) -> Snapshot:
    made = make_snapshot("large")
    large = msgspec.structs.replace(
        made.models["large"], context_window=65_536, output_tokens_max=8_192
    )
    models = {name: msgspec.structs.replace(large, name=name) for name in SIZE_CLASSES}
    names = frozenset(models)
    return msgspec.structs.replace(made, models=models, model_names=names, rules=(rule,))
