"""A route with a smaller model behind the first, and what its receipts and answers say."""

from __future__ import annotations

import json

import httpx2
import msgspec

from controlplane.gateway.snapshot import ModelRecord
from controlplane.kernel.price import Price
from controlplane.kernel.rules import RouteRule, Step, Target
from tests.support.fleet import MODEL
from tests.support.gateway import GatewayUnderTest

SMALL = "small"
SMALL_PRICE = Price(version=5, input_pico=50_000, cached_pico=10_000, output_pico=200_000)
TO_SPARE = (Target(model=MODEL, pool="spare"),)
TO_SMALL = (Target(model=SMALL),)
OWN = (Target(model=MODEL),)


def route(under_test: GatewayUnderTest, *steps: Step, **changes: object) -> RouteRule:
    """One rule for everything, and a smaller model that it may lead to."""
    rule = RouteRule(name="chat", version=3, steps=steps)
    rule = msgspec.structs.replace(rule, **changes)
    keys = under_test.keys
    small = msgspec.structs.replace(keys.current.models[MODEL], name=SMALL, price=SMALL_PRICE)
    models = {**keys.current.models, SMALL: small}
    keys.current = msgspec.structs.replace(keys.current, rules=(rule,), models=models)
    return rule


def change_small(under_test: GatewayUnderTest, **changes: object) -> None:
    """The smaller model with other bounds."""
    keys = under_test.keys
    small: ModelRecord = msgspec.structs.replace(keys.current.models[SMALL], **changes)
    models = {**keys.current.models, SMALL: small}
    keys.current = msgspec.structs.replace(keys.current, models=models)


def steps_told(under_test: GatewayUnderTest) -> list[tuple[int, str, str, str]]:
    """Steps in the receipt of the one request there was."""
    (record,) = under_test.recorder.records
    receipt = json.loads(record.receipt)
    assert receipt["rule"] == record.route == "chat@3"
    return [tuple(step.values()) for step in receipt["steps"]]


def text_of(answer: httpx2.Response) -> str:
    """What the model said, whichever way it came."""
    if answer.headers["content-type"].startswith("application/json"):
        text: str = answer.json()["choices"][0]["message"]["content"]
        return text
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert events.pop() == "[DONE]"
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)
