"""Thoughts are told from the answer by token ids, however they arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.answer import Piece
from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import CONTENT_FILTER
from controlplane.gateway.s6_finish.finisher import Finisher
from inference.contract.frames import Output, Sampling
from inference.contract.parts import TokenLogprob
from inference.text.model_text import ModelText
from tests.support.fleet import MODEL, make_output
from tests.support.ports import WordSafety
from tests.support.thinking import CLOSING, OPENING, make_thinking, text_of

SECRET = "ghp_" + "a" * 36
SAID = "<think>\nOne and 東京.\n\n</think>\n\nTwo, ünd."


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ModelText:
    return text_of(make_thinking(tmp_path_factory.mktemp("thinking")))


def make_finisher(
    text: ModelText, opened: bool | None = None, *, mode: str = "off", **changes: Any
) -> Finisher:
    logprobs = changes.pop("logprobs", None)
    ask = Ask(
        operation="chat",
        model=MODEL,
        stream=True,
        include_usage=False,
        sampling=Sampling(max_tokens=0, logprobs=logprobs),
        output_tokens=None,
        bytes=0,
        **{"stop": (), **changes},
    )
    call = Call([])
    call.note_tokens()
    return Finisher(call, ask, text, mode=mode, safety=WordSafety(), opened=opened)  # type: ignore[arg-type]


def outputs_of(tokens: list[int], sizes: list[int]) -> list[Output]:
    """The tokens in parts of these sizes, and in one for the rest, which ends the choice."""
    parts = []
    for size in sizes:
        part, tokens = tokens[:size], tokens[size:]
        parts.append(part)
    parts.append(tokens)
    last = len(parts) - 1
    return [
        make_output(b"r" * 16, tokens=part, finish="stop" if place == last else None)
        for place, part in enumerate(parts)
    ]


async def all_of(finisher: Finisher, outputs: list[Output]) -> Piece:
    whole = Piece(choice=0, text="", logprobs=[])
    for output in outputs:
        text = None if finisher.screens else finisher.next_text(output)
        if text is not None:
            whole.text += text
            continue
        pieces = (
            await finisher.feed_screened([output]) if finisher.screens else finisher.feed([output])
        )
        for piece in pieces:
            whole.join(piece)
    return whole


def found(text: ModelText, said: str, sizes: list[int], **changes: Any) -> tuple[Any, ...]:
    """Thoughts, answer and both counts; no part of it waits for anybody."""
    tokens = text.encode(said, add_special=False)
    finisher = make_finisher(text, **changes)
    coming = all_of(finisher, outputs_of(tokens, sizes))
    with pytest.raises(StopIteration) as done:
        coming.send(None)
    piece = done.value.value
    return piece.reasoning, piece.text, finisher.reasoning_tokens, finisher.cut_tokens, len(tokens)


def test_thoughts_and_answer(text: ModelText) -> None:
    thought, answer, counted, cut, size = found(text, SAID, [])
    assert (thought, answer) == ("One and 東京.", "Two, ünd.")
    assert (counted, cut) == (size - len("Two, ünd.".encode()), size)


CASES = st.lists(
    st.sampled_from([
        "<think>", "</think>", "\n", "\n\n", " ", "a", "b c", "é", "東", "🙂", "STOP", "<thi",
    ]),
    max_size=14,
)  # fmt: skip


@given(
    parts=CASES,
    sizes=st.lists(st.integers(0, 5), max_size=20),
    opened=st.sampled_from([True, False, None]),
    stop=st.sampled_from([(), ("STOP",)]),
    mode=st.sampled_from(["off", "block"]),
)
def test_any_chunking_gives_the_same(
    text: ModelText,
    parts: list[str],
    sizes: list[int],
    opened: bool | None,
    stop: tuple[str, ...],
    mode: str,
) -> None:
    said = "".join(parts)
    changes: dict[str, Any] = {"opened": opened, "stop": stop, "mode": mode}
    whole = found(text, said, [], **changes)
    assert found(text, said, sizes, **changes) == whole
    assert found(text, said, [1] * len(said.encode()), **changes) == whole


@given(parts=CASES, opened=st.sampled_from([True, None]))
def test_they_are_split_at_the_first_marks(
    text: ModelText, parts: list[str], opened: bool | None
) -> None:
    said = "".join(parts)
    thought, answer, counted, _, size = found(text, said, [], opened=opened)
    begun = said if opened else said.lstrip("\n")
    if not opened and not begun.startswith("<think>"):
        assert (thought, answer, counted) == ("", begun, 0)
        return
    inside, mark, rest = begun.partition("</think>")
    assert thought == inside.replace("<think>", "").strip()
    assert answer == (rest.lstrip("\n") if mark else "")
    assert counted == size - len(text.encode(answer, add_special=False))


def test_where_the_prompt_opens_them_only_the_end_shows(text: ModelText) -> None:
    said = SAID.removeprefix("<think>\n")
    assert found(text, said, [3], opened=True)[:2] == ("One and 東京.", "Two, ünd.")
    # Else nothing begins them, and nothing is lost.
    assert found(text, said, [3])[:2] == ("", said)


def test_an_answer_may_speak_of_the_marks(text: ModelText) -> None:
    assert found(text, "Write <think>.", [])[:3] == ("", "Write <think>.", 0)
    said = "<think>a</think>Write <think>b</think>."
    assert found(text, said, [])[:2] == ("a", "Write <think>b</think>.")


def test_a_cut_off_thought_is_all_there_is(text: ModelText) -> None:
    tokens = text.encode("<think>One 東", add_special=False)[:-1]
    finisher = make_finisher(text)
    (piece,) = finisher.feed([make_output(b"r" * 16, tokens=tokens, finish="length")])
    assert (piece.reasoning, piece.text, piece.finish) == (
        "One \N{REPLACEMENT CHARACTER}",
        "",
        "length",
    )
    assert finisher.reasoning_tokens == finisher.cut_tokens == len(tokens)


async def test_stop_strings_and_logprobs_are_of_the_answer(text: ModelText) -> None:
    finisher = make_finisher(text, stop=("wo",), logprobs=0)
    tokens = text.encode("<think>wow</think>\nTwo", add_special=False)
    logprobs = [TokenLogprob(token=token, logprob=-1.0, top=[]) for token in tokens]
    (piece,) = finisher.feed([make_output(b"r" * 16, tokens=tokens, logprobs=logprobs)])
    assert (piece.reasoning, piece.text, piece.finish) == ("wow", "T", "stop")
    assert [entry.token for entry in piece.logprobs] == [ord("T") - ord("!")]
    assert (finisher.reasoning_tokens, finisher.cut_tokens) == (6, len(tokens))


async def test_thoughts_are_screened(text: ModelText) -> None:
    finisher = make_finisher(text, mode="block")
    tokens = text.encode(f"<think>It is {SECRET} .</think>No", add_special=False)
    piece = await all_of(finisher, outputs_of(tokens, [2, 30, 30]))
    assert (piece.text, piece.finish) == ("", CONTENT_FILTER)
    assert SECRET not in piece.reasoning and finisher.verdict == "github_token"


async def test_times_of_the_first_thought_and_answer(text: ModelText) -> None:
    finisher = make_finisher(text)
    call = finisher._call
    finisher.feed([make_output(b"r" * 16, tokens=[OPENING, 65])])
    assert call.thought_ns == call.last_token_ns and not call.answer_ns
    call.note_tokens()
    finisher.feed([make_output(b"r" * 16, tokens=[CLOSING])])
    assert not call.answer_ns
    finisher.feed([make_output(b"r" * 16, tokens=[66])])
    assert call.answer_ns == call.last_token_ns > call.thought_ns


@pytest.mark.parametrize("special", [False, True])
def test_marks_that_are_special_tokens_too(tmp_path: Path, special: bool) -> None:
    marks = ("[THINK]", "[/THINK]")
    text = text_of(make_thinking(tmp_path, special=special, marks=marks))
    assert found(text, "[THINK]a[/THINK]b", [2])[:2] == ("a", "b")


def test_calls_are_found_in_the_answer_alone(text: ModelText) -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    tokens = text.encode(f"<think>{call}</think>{call}", add_special=False)
    finisher = make_finisher(text, tools=({},))
    (piece,) = finisher.feed([make_output(b"r" * 16, tokens=tokens, finish="stop")])
    assert (piece.reasoning, piece.text, piece.finish) == (call, "", "tool_calls")
    assert [each.name for each in piece.calls if each.id] == ["f"]
