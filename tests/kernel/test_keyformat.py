"""Credentials: what is made is accepted, what is mistyped is refused, nothing raises."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kernel.keys.format import (
    NODE_PREFIX,
    USER_PREFIX,
    CredentialDigest,
    claimed_id,
    digest,
    new_credential,
    parse_credential,
    redacted,
)

SHAPE = re.compile(r"sk_sluice_[0-9A-Za-z]{12}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}")


def test_shape() -> None:
    made = new_credential()
    assert SHAPE.fullmatch(made.text)
    assert made.text.split("_")[2] == made.key_id


@pytest.mark.parametrize("prefix", [USER_PREFIX, NODE_PREFIX])
def test_what_is_made_is_accepted(prefix: str) -> None:
    made = new_credential(prefix)
    assert parse_credential(made.text, prefix) == made
    other = NODE_PREFIX if prefix == USER_PREFIX else USER_PREFIX
    assert parse_credential(made.text, other) is None


def test_a_key_claims_the_id_in_it() -> None:
    made = new_credential()
    assert claimed_id(made.text) == made.key_id


@given(pepper=st.binary(max_size=130), text=st.text(st.characters(codec="ascii")))
def test_the_kept_states_give_the_same_digest(pepper: bytes, text: str) -> None:
    kept = CredentialDigest(pepper)
    assert kept(text) == kept(text) == digest(text, pepper)


@given(place=st.integers(0, 75), char=st.characters())
def test_one_wrong_character_is_noticed(place: int, char: str) -> None:
    text = new_credential().text
    place %= len(text)
    wrong = text[:place] + char + text[place + 1 :]
    assert (parse_credential(wrong) is None) == (wrong != text)


@given(st.text())
def test_any_text_is_refused_without_an_error(text: str) -> None:
    assert parse_credential(text) is None
    assert parse_credential(USER_PREFIX + "_" + text) is None


@given(st.text(min_size=73, max_size=73).map(lambda tail: (USER_PREFIX + "_" + tail)[:73]))
def test_text_of_the_right_length_too(text: str) -> None:
    assert parse_credential(text) is None


def test_swapped_neighbours_are_noticed() -> None:
    text = new_credential().text
    for place in range(len(USER_PREFIX) + 1, len(text) - 1):
        swapped = text[:place] + text[place + 1] + text[place] + text[place + 2 :]
        assert swapped == text or parse_credential(swapped) is None


def test_digest_depends_on_key_and_pepper() -> None:
    one, two = new_credential().text, new_credential().text
    assert len({digest(one, b"a"), digest(one, b"b"), digest(two, b"a")}) == 3
    assert digest(one, b"a") == digest(one, b"a")


def test_redacted_shows_four_characters_of_the_secret() -> None:
    made = new_credential()
    secret = made.text.split("_")[3]
    shown = redacted(made)
    assert shown.endswith(secret[-4:])
    assert not any(secret[at : at + 5] in shown for at in range(len(secret) - 4))
