"""The safety layer: what block never lets out, what flag never delays, what each marks."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.s6_finish.safety import (
    HOLD_BACK_CHARS,
    UNCHECKED,
    SafetyFilter,
    find_pattern,
)
from tests.support.ports import WordSafety

SECRETS = {
    "private_key": "-----BEGIN RSA PRIVATE KEY-----",
    "aws_access_key": "AKIAABCDEFGHIJKLMNOP",
    "api_key": "sk_sluice_0123456789ab",
    "github_token": "ghp_" + "a1B2" * 9,
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "a" * 400,
    "email": "someone.else+tag@mail.example.org",
    "card": "4111 1111 1111 1111",
    "iban": "DE89 3704 0044 0532 0130 00",
    "us_ssn": "078-05-1120",
}
PLAIN = st.text(st.sampled_from("ab ,.\n"), max_size=2 * HOLD_BACK_CHARS)


class LateSafety:
    """A classifier that is not there."""

    async def score(self, text: str) -> float:
        """Never in time."""
        raise TimeoutError


class SlowSafety:
    """A classifier that answers when it is told to."""

    def __init__(self) -> None:
        self.told = asyncio.Event()

    async def score(self, text: str) -> float:
        """Abuse, in the end."""
        await self.told.wait()
        return 1.0


async def read(screen: SafetyFilter, chunks: list[str]) -> list[str]:
    """What comes out after each chunk, and at the end."""
    shown = [await screen.feed(chunk) for chunk in chunks]
    return [*shown, await screen.close()]


def cut(text: str, size: int) -> list[str]:
    """Chunks of a size."""
    return [text[place : place + size] for place in range(0, len(text), size)]


@pytest.mark.parametrize("name", SECRETS)
def test_each_pattern_is_known_by_name(name: str) -> None:
    assert find_pattern(f"It is {SECRETS[name]}, keep it.") == name


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",
        "order 1234567890123 of 2026",
        "call 555-1234-567",
        "sk_live_short",
        "a@b",
        "eyJ",
        "AKIAabcdefghijklmnop",
        "one.two.three",
    ],
)
def test_what_only_resembles_a_pattern_passes(text: str) -> None:
    assert find_pattern(text) is None


@pytest.mark.parametrize(
    "text",
    ["4111 1111 1111 1111 12/26", "12 4111 1111 1111 1111", "card 4111-1111-1111-1111 999"],
)
def test_numbers_beside_a_card_do_not_hide_it(text: str) -> None:
    assert find_pattern(text) == "card"


@given(
    before=PLAIN,
    after=PLAIN,
    name=st.sampled_from(sorted(SECRETS)),
    size=st.integers(1, 3 * HOLD_BACK_CHARS),
)
def test_block_never_lets_a_secret_begin(before: str, after: str, name: str, size: int) -> None:
    async def run() -> None:
        screen = SafetyFilter("block", WordSafety())
        secret = f" {SECRETS[name]} "
        shown = "".join(await read(screen, cut(before + secret + after, size)))
        assert screen.blocked and screen.verdict == name
        assert before.startswith(shown.rstrip(" ")) or shown == before + " "

    asyncio.run(run())


@given(text=PLAIN, size=st.integers(1, 3 * HOLD_BACK_CHARS))
def test_block_holds_back_at_most_its_bound(text: str, size: int) -> None:
    async def run() -> None:
        screen = SafetyFilter("block", WordSafety())
        fed, shown = "", ""
        for chunk in cut(text, size):
            fed += chunk
            shown += await screen.feed(chunk)
            assert fed.startswith(shown) and len(fed) - len(shown) <= HOLD_BACK_CHARS
        assert shown + await screen.close() == text
        assert screen.verdict == "" and not screen.blocked

    asyncio.run(run())


@given(text=PLAIN, name=st.sampled_from(sorted(SECRETS)), size=st.integers(1, 400))
def test_flag_shows_everything_at_once_and_marks(text: str, name: str, size: int) -> None:
    async def run() -> None:
        screen = SafetyFilter("flag", WordSafety())
        chunks = cut(f"{text} {SECRETS[name]} {text}", size)
        assert await read(screen, chunks) == [*chunks, ""]
        await screen.settled()
        assert screen.verdict == name and not screen.blocked

    asyncio.run(run())


async def test_a_number_that_goes_on_is_not_judged_by_its_start() -> None:
    screen = SafetyFilter("block", WordSafety())
    shown = await read(screen, ["id 078-05-1120", "77 ok"])
    assert "".join(shown) == "id 078-05-112077 ok"


async def test_a_word_cut_at_the_window_is_no_new_word() -> None:
    screen = SafetyFilter("block", WordSafety())
    text = "x" * 5 + "AKIAABCDEFGHIJKLMNOP" + " " * HOLD_BACK_CHARS + "."
    assert "".join(await read(screen, cut(text, 1))) == text


async def test_block_stops_at_what_the_classifier_finds() -> None:
    screen = SafetyFilter("block", WordSafety())
    shown = "".join(await read(screen, cut("You are an idiot. " + "And more. " * 40, 7)))
    assert screen.verdict == "abuse" and "idiot" not in shown


async def test_block_reads_the_last_words_too() -> None:
    screen = SafetyFilter("block", WordSafety())
    assert await read(screen, ["short, idiot"]) == ["", ""]


async def test_flag_does_not_wait_for_the_classifier() -> None:
    safety = SlowSafety()
    screen = SafetyFilter("flag", safety)
    assert await read(screen, ["idiot " * 40]) == ["idiot " * 40, ""]
    assert screen.verdict == ""
    safety.told.set()
    await screen.settled()
    assert screen.verdict == "abuse"


@pytest.mark.parametrize("mode", ["flag", "block"])
async def test_without_the_classifier_answers_go_on_marked(mode: str) -> None:
    screen = SafetyFilter(mode, LateSafety())  # type: ignore[arg-type]
    assert "".join(await read(screen, cut("fine " * 100, 30))) == "fine " * 100
    await screen.settled()
    assert screen.verdict == UNCHECKED


async def test_a_finding_is_not_overwritten_by_a_late_classifier() -> None:
    screen = SafetyFilter("flag", LateSafety())
    await read(screen, [SECRETS["email"] + " " + "fine " * 50])
    await screen.settled()
    assert screen.verdict == "email"
