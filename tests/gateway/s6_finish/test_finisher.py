"""Stage 6 as a whole: where a choice ends, what is charged for it, which logprobs leave with it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from controlplane.gateway.answer import Piece
from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import CONTENT_FILTER
from controlplane.gateway.s6_finish.finisher import Finisher
from inference.contract.frames import Output, Sampling
from inference.contract.parts import TokenLogprob
from inference.text.model_text import ModelText
from tests.support.fleet import MODEL, make_model, make_output
from tests.support.ports import WordSafety

EMAIL = "someone@example.org"


@pytest.fixture
def text(tmp_path: Path) -> ModelText:
    """One token per byte."""
    folder = make_model(tmp_path)
    names = ("tokenizer.json", "tokenizer_config.json")
    return ModelText.from_files({name: (folder / name).read_bytes() for name in names})


def make_finisher(text: ModelText, *, mode: str = "off", n: int = 1, **changes: object) -> Finisher:
    """A finisher that asks for logprobs."""
    ask = Ask(
        operation="chat",
        model=MODEL,
        stream=True,
        include_usage=False,
        sampling=Sampling(max_tokens=0, n=n, logprobs=0),
        output_tokens=None,
        stop=(),
        bytes=0,
    )
    ask = msgspec.structs.replace(ask, **changes)
    return Finisher(Call([]), ask, text, mode=mode, safety=WordSafety())  # type: ignore[arg-type]


async def fed(finisher: Finisher, output: Output) -> list[Piece]:
    """The pieces of one output, whether or not it is screened."""
    return await finisher.feed_screened([output]) if finisher.screens else finisher.feed([output])


async def feed(
    finisher: Finisher, text: ModelText, words: str, *, finish: str | None = None, choice: int = 0
) -> Piece:
    """Feed all tokens of a text in one output."""
    tokens = text.encode(words, add_special=False)
    logprobs = [TokenLogprob(token=token, logprob=-1.0, top=[]) for token in tokens]
    output = make_output(b"r" * 16, tokens=tokens, logprobs=logprobs, finish=finish, choice=choice)
    (piece,) = await fed(finisher, output)
    return piece


def letters(text: ModelText, piece: Piece) -> str:
    """The text that the logprobs of a piece name."""
    return b"".join(text.token_text(entry.token)[1] for entry in piece.logprobs).decode()


async def test_stop_inside_an_output_charges_only_up_to_it(text: ModelText) -> None:
    finisher = make_finisher(text, stop=("de",))
    piece = await feed(finisher, text, "abcdefghij")
    assert (piece.text, piece.finish) == ("abc", "stop")
    assert letters(text, piece) == "abc"
    assert finisher.was_cut and finisher.cut_tokens == 5


async def test_text_after_the_end_of_a_choice_is_ignored(text: ModelText) -> None:
    finisher = make_finisher(text, stop=("b",))
    await feed(finisher, text, "ab")
    output = make_output(b"r" * 16, tokens=[65], usage=make_output(b"r" * 16).usage)
    assert await fed(finisher, output) == []
    assert finisher.cut_tokens == 2


async def test_logprobs_wait_with_text_that_may_be_a_stop(text: ModelText) -> None:
    finisher = make_finisher(text, stop=("bcd",))
    first = await feed(finisher, text, "abc")
    assert (first.text, letters(text, first)) == ("a", "a")
    second = await feed(finisher, text, "x", finish="length")
    assert (second.text, letters(text, second)) == ("bcx", "bcx")


async def test_logprobs_do_not_tell_what_block_holds_back(text: ModelText) -> None:
    finisher = make_finisher(text, mode="block")
    before = await feed(finisher, text, "My address is ")
    piece = await feed(finisher, text, EMAIL + " !", finish="stop")
    assert (before.text, before.logprobs) == ("", [])
    assert (piece.text, piece.logprobs, piece.finish) == ("", [], CONTENT_FILTER)
    assert finisher.verdict == "email"


async def test_block_without_a_finding_gives_all_logprobs_in_the_end(text: ModelText) -> None:
    finisher = make_finisher(text, mode="block")
    pieces = [await feed(finisher, text, "word " * 60)]
    pieces.append(await feed(finisher, text, "end", finish="stop"))
    assert "".join(piece.text for piece in pieces) == "word " * 60 + "end"
    assert "".join(letters(text, piece) for piece in pieces) == "word " * 60 + "end"


async def test_characters_of_several_tokens_come_whole(text: ModelText) -> None:
    finisher = make_finisher(text)
    tokens = text.encode("€", add_special=False)
    shown = []
    for token in tokens:
        (piece,) = await fed(finisher, make_output(b"r" * 16, tokens=[token]))
        shown.append(piece.text)
    assert shown == ["", "", "€"]


async def test_choices_end_each_for_itself(text: ModelText) -> None:
    finisher = make_finisher(text, n=2, stop=("b",))
    first = await feed(finisher, text, "ab")
    assert (first.finish, finisher.ended) == ("stop", False)
    second = await feed(finisher, text, "aaa", finish="length", choice=1)
    assert (second.choice, second.text, second.finish) == (1, "aaa", "length")
    assert all(choice.finish for choice in finisher.choices)
    assert finisher.cut_tokens == 5
