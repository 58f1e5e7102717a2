"""Calls out of a choice's text, however it is cut into pieces, and spelled as text again."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from controlplane.gateway.s6_finish.tools import CallFinder, CallSpeller
from inference.contract.parts import ToolCallDelta
from inference.text.model_text import ModelText
from tests.gateway.s6_finish.test_finisher import EMAIL, feed, make_finisher
from tests.support.fleet import make_model

ARGUMENTS = '{"q": "a \\"{<tool_call>}\\\\", "n": [1, {"m": 2}]}'
OTHER = '{"city":\n "Paris é 東"}'


def call(name: str, arguments: str) -> str:
    """One call, as a model writes it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


TWO = call("find", ARGUMENTS) + "\n" + call("look-up", OTHER)


def found(parts: list[str]) -> tuple[str, dict[int, dict[str, Any]], CallFinder]:
    """Text and calls of a finder that was fed these parts."""
    finder = CallFinder("call_x")
    shown = ""
    calls: dict[int, dict[str, Any]] = {}
    for part in parts:
        text, deltas = finder.feed(part)
        shown += text
        for delta in deltas:
            if delta.id is not None:
                calls[delta.index] = {"id": delta.id, "name": delta.name, "arguments": ""}
            calls[delta.index]["arguments"] += delta.arguments
    return shown + finder.close(cut=True), calls, finder


@pytest.mark.parametrize("width", [1, 2, 3, 7, 16, 1000])
@pytest.mark.parametrize("before", ["", "I will look. ", "a < b <tool <tool_cal "])
def test_calls_and_the_text_before_them(width: int, before: str) -> None:
    whole = before + TWO
    parts = [whole[at : at + width] for at in range(0, len(whole), width)]
    shown, calls, finder = found(parts)
    assert shown == before and finder.complete == 2
    assert [(each["name"], each["arguments"]) for each in calls.values()] == [
        ("find", ARGUMENTS), ("look-up", OTHER),
    ]  # fmt: skip
    assert [each["id"] for each in calls.values()] == ["call_x_0", "call_x_1"]


def test_arguments_leave_as_they_come() -> None:
    finder = CallFinder("c")
    finder.feed('<tool_call>\n{"name": "f", "arguments": ')
    _, first = finder.feed('{"a')
    _, second = finder.feed('": 1')
    assert [(each.name, each.arguments) for each in first] == [("f", ""), (None, '{"a')]
    assert [each.arguments for each in second] == ['": 1']


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "ends in <",
        "ends in <tool_call",
        "<tool_calls>",
        "<tool_call >",
        "</tool_call>",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    for parts in ([text], list(text)):
        shown, calls, finder = found(parts)
        assert (shown, calls, finder.complete) == (text, {}, 0)


def test_a_tag_that_no_call_follows_is_given_back() -> None:
    text = "<tool_call>" + "x" * 300
    assert found(list(text))[0] == text


@pytest.mark.parametrize("before", ["", TWO])
def test_a_tag_at_a_whole_end_is_given_back(before: str) -> None:
    finder = CallFinder("c")
    finder.feed(before + "<tool_call> not so")
    assert finder.close(cut=False) == "<tool_call> not so"


@pytest.mark.parametrize("length", range(1, len(TWO)))
def test_a_cut_leaves_what_has_come(length: int) -> None:
    shown, calls, finder = found([TWO[:length]])
    assert finder.complete == TWO[:length].count("</tool_call>")
    told = [(each["name"], each["arguments"]) for each in calls.values()]
    for (name, arguments), (wanted, whole) in zip(
        told, [("find", ARGUMENTS), ("look-up", OTHER)], strict=False
    ):
        assert name == wanted and whole.startswith(arguments)
    assert shown == (TWO[:length] if length < len("<tool_call>") else "")


def delta(index: int, arguments: str = "", name: str | None = None) -> ToolCallDelta:
    return ToolCallDelta(index=index, id=name and f"id_{name}", name=name, arguments=arguments)


def test_calls_that_an_engine_parsed_are_found_again() -> None:
    speller = CallSpeller()
    pieces = [
        [delta(0, name="find")],
        [delta(0, ARGUMENTS[:9]), delta(0, ARGUMENTS[9:])],
        [delta(1, OTHER, name="look-up"), delta(2, name="none")],
    ]
    parts = [*(speller.feed(each) for each in pieces), speller.close()]
    shown, calls, finder = found(parts)
    assert shown == "" and finder.complete == 3
    assert [each["arguments"] for each in calls.values()] == [ARGUMENTS, OTHER, "{}"]
    assert all(json.loads(each["arguments"]) is not None for each in calls.values())


@pytest.fixture
def text(tmp_path: Path) -> ModelText:
    """One token per byte."""
    folder = make_model(tmp_path)
    names = ("tokenizer.json", "tokenizer_config.json")
    return ModelText.from_files({name: (folder / name).read_bytes() for name in names})


TOOLS: tuple[dict[str, Any], ...] = ({"type": "function", "function": {"name": "f"}},)


async def test_the_reason_of_a_choice_that_called(text: ModelText) -> None:
    for words, finish, reason in (
        (call("f", "{}"), "stop", "tool_calls"),
        (call("f", "{}"), "length", "length"),
        (call("f", "{}")[:-4], "length", "length"),
        ("no call", "stop", "stop"),
    ):
        finisher = make_finisher(text, tools=TOOLS)
        piece = await feed(finisher, text, words, finish=finish)
        assert piece.finish == finisher.finish_reason == reason
        assert bool(piece.calls) == ("tool_call" in words)


async def test_each_choice_has_calls_of_its_own(text: ModelText) -> None:
    finisher = make_finisher(text, n=2, tools=TOOLS)
    pieces = [await feed(finisher, text, call("f", "{}"), finish="stop", choice=n) for n in (0, 1)]
    ids = list(itertools.chain.from_iterable([each.id for each in piece.calls] for piece in pieces))
    assert len({each for each in ids if each}) == 2


async def test_without_tools_a_call_is_text(text: ModelText) -> None:
    piece = await feed(make_finisher(text), text, call("f", "{}"), finish="stop")
    assert (piece.text, piece.calls, piece.finish) == (call("f", "{}"), [], "stop")


async def test_the_safety_layer_reads_arguments(text: ModelText) -> None:
    finisher = make_finisher(text, mode="block", tools=TOOLS)
    piece = await feed(finisher, text, call("f", f'{{"to": "{EMAIL}"}}'), finish="stop")
    assert piece.finish == "content_filter" and finisher.verdict == "email"
    assert EMAIL not in "".join(each.arguments for each in piece.calls)
