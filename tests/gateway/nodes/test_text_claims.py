"""What a node without a tokenizer may claim, and what no node with one may."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controlplane.gateway.nodes.checks import (
    TOOL_CALLS_MAX,
    hello_problem,
    output_problem,
    report_problem,
    text_output_problem,
)
from inference.contract.frames import OUTPUT_TEXT_CHARS_MAX, ModelOffer
from inference.contract.parts import TokenLogprob, ToolCallDelta
from tests.support.fleet import (
    make_hello,
    make_job,
    make_output,
    make_report,
    make_usage,
    new_request,
)


def text_output(**changes: Any) -> str | None:
    output = make_output(new_request(), tokens=[], text="some")
    return text_output_problem(msgspec.structs.replace(output, **changes), choices=2)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"choice": 1, "finish": "content_filter"},
        {"text": None, "tool_calls": [ToolCallDelta(index=0, id="a", name="b")]},
        {"text": "x" * OUTPUT_TEXT_CHARS_MAX},
        {"text": None, "reasoning": "x"},
        # Its prompt is its own business; what is charged is bounded elsewhere.
        {"usage": make_usage(prompt=10_000)},
    ],
)
def test_what_may_be(changes: dict[str, Any]) -> None:
    assert text_output(**changes) is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"choice": 2}, "output.choice"),
        ({"choice": -1}, "output.choice"),
        ({"finish": "maybe"}, "output.finish"),
        ({"tokens": [1]}, "output.tokens"),
        ({"logprobs": [TokenLogprob(token=1, logprob=0.0, top=[])]}, "output.logprobs"),
        ({"text": "x" * (OUTPUT_TEXT_CHARS_MAX + 1)}, "output.text"),
        ({"reasoning": "x" * OUTPUT_TEXT_CHARS_MAX}, "output.text"),
        (
            {"usage": msgspec.structs.replace(make_usage(completion=3), reasoning_tokens=4)},
            "usage.reasoning_tokens",
        ),
        ({"tool_calls": [ToolCallDelta(index=TOOL_CALLS_MAX)]}, "output.tool_calls"),
        ({"tool_calls": [ToolCallDelta(index=-1)]}, "output.tool_calls"),
        ({"tool_calls": [ToolCallDelta(index=0)] * (TOOL_CALLS_MAX + 1)}, "output.tool_calls"),
        (
            {"tool_calls": [ToolCallDelta(index=0, arguments="x" * OUTPUT_TEXT_CHARS_MAX)]},
            "output.text",
        ),
        ({"usage": make_usage(prompt=1, cached=2)}, "usage.cached_tokens"),
        ({"usage": msgspec.structs.replace(make_usage(), source="god")}, "usage.source"),
    ],
)
def test_what_cannot_be(changes: dict[str, Any], named: str) -> None:
    assert (text_output(**changes) or "").startswith(named)


@pytest.mark.parametrize(
    "changes",
    [{"text": "x"}, {"text": ""}, {"reasoning": ""}, {"tool_calls": []}, {"finish": "tool_calls"}],
)
def test_a_node_with_a_tokenizer_sends_no_text(changes: dict[str, Any]) -> None:
    output = make_output(new_request(), **changes)
    assert output_problem(output, job=make_job(), vocab_size=256) is not None


@pytest.mark.parametrize(
    ("digest", "vocab_size", "fine"),
    [("", 0, True), ("0" * 64, 256, True), ("", 256, False), ("0" * 64, 0, False)],
)
def test_a_model_has_a_tokenizer_whole_or_none(digest: str, vocab_size: int, fine: bool) -> None:
    offer = ModelOffer(name="m", digest=digest, context_window=64, vocab_size=vocab_size)
    assert (hello_problem(make_hello(models=[offer])) is None) == fine


def test_a_report_may_end_as_text_does() -> None:
    report = make_report(new_request())
    assert report_problem(msgspec.structs.replace(report, finish="tool_calls")) is None
    assert report_problem(msgspec.structs.replace(report, finish="maybe")) is not None
