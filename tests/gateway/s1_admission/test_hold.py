"""What is held for a request: the most that any of its models, choices and tokens can cost."""

from __future__ import annotations

import msgspec
import pytest

from controlplane.gateway.ask import Ask
from controlplane.gateway.plan import PlannedStep, RoutePlan
from controlplane.gateway.s1_admission.hold import bound_nano, exact_nano, prompt_bound
from controlplane.gateway.snapshot import ModelRecord
from controlplane.kernel.price import Price, hold_nano
from controlplane.kernel.rules import PRIORITY_NORMAL
from inference.contract.frames import Sampling
from tests.support.ports import make_snapshot

OUTPUT, PROMPT = 7, 5
CHEAP = Price(version=1, input_pico=1_000, cached_pico=100, output_pico=4_000)
DEAR = Price(version=1, input_pico=9_000, cached_pico=900, output_pico=36_000)


def model(price: Price) -> ModelRecord:
    return msgspec.structs.replace(make_snapshot("large").models["large"], price=price)


def plan(*prices: Price) -> RoutePlan:
    steps = (
        PlannedStep(number, model(price), "default", 0.0, OUTPUT)
        for number, price in enumerate(prices, start=1)
    )
    return RoutePlan(None, PRIORITY_NORMAL, tuple(steps))


def ask(choices: int) -> Ask:
    return Ask(
        operation="chat",
        model="large",
        stream=False,
        include_usage=False,
        sampling=Sampling(max_tokens=OUTPUT, n=choices),
        output_tokens=OUTPUT,
        stop=(),
        bytes=100,
        text="a",
    )


@pytest.mark.parametrize("choices", [1, 3])
@pytest.mark.parametrize("prices", [(CHEAP,), (CHEAP, DEAR), (DEAR, CHEAP)])
async def test_each_choice_of_the_dearest_model_is_held_for(
    choices: int, prices: tuple[Price, ...]
) -> None:
    asked, planned = ask(choices), plan(*prices)
    dearest = DEAR if DEAR in prices else CHEAP
    tokens = prompt_bound(asked, model(dearest))
    assert bound_nano(asked, planned) == hold_nano(dearest, tokens, OUTPUT * choices)

    async def counted(_: ModelRecord) -> int:
        return PROMPT

    exact = await exact_nano(asked, planned, counted)
    assert exact == hold_nano(dearest, PROMPT, OUTPUT * choices)
