"""Personal data by form and check digits, wherever in a text it stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kernel.policies.personal import (
    PART_CHARS,
    Personal,
    find_personal,
    luhn_valid,
)

FOUND: list[tuple[Personal, str]] = [
    ("email", "ann.lee+x@mail.example.org"),
    ("card", "4111 1111 1111 1111"),
    ("card", "378282246310005"),
    ("iban", "DE89 3704 0044 0532 0130 00"),
    ("iban", "GB82WEST12345698765432"),
    ("ip", "192.168.0.17"),
    ("ip", "2001:db8::8a2e:370:7334"),
    ("phone", "+49 30 1234567"),
    ("phone", "(555) 123-4567"),
    ("ssn", "078-05-1120"),
]


@pytest.mark.parametrize(("kind", "text"), FOUND)
@given(before=st.integers(0, 2 * PART_CHARS), after=st.sampled_from(["", ".", ", and", "\n"]))
def test_each_is_found_wherever_it_stands(
    kind: Personal, text: str, before: int, after: str
) -> None:
    around = "x " * (before // 2)
    assert list(find_personal(around + text + after, kind)) == [
        (len(around), len(around) + len(text))
    ]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("card", "4111 1111 1111 1112"),
        ("iban", "DE88 3704 0044 0532 0130 00"),
        ("ip", "256.1.1.1"),
        ("ip", "at 10:30:45 it was v1.2.3.4.5 of std::x"),
        ("phone", "in 2024 12345 people"),
        ("email", "a@b"),
        ("ssn", "1078-05-1120"),
    ],
)
def test_what_only_looks_like_it_is_left(kind: Personal, text: str) -> None:
    assert list(find_personal(text, kind)) == []


def test_a_word_behind_a_number_does_not_hide_it() -> None:
    text = "GB82 WEST 1234 5698 7654 32 ABCD"
    assert [text[a:b] for a, b in find_personal(text, "iban")] == ["GB82 WEST 1234 5698 7654 32"]
    text = "+1 415 555 2671 2024 2025"
    assert [text[a:b] for a, b in find_personal(text, "phone")] == ["+1 415 555 2671 2024"]


@given(st.text(st.sampled_from("0123456789 -+()@.:abDE89/"), max_size=200))
def test_places_are_in_order_and_apart(text: str) -> None:
    for kind, _ in FOUND:
        places = [place for pair in find_personal(text, kind) for place in pair]
        assert places == sorted(places) and all(0 <= place <= len(text) for place in places)


def test_check_digit() -> None:
    assert luhn_valid("79927398713")
    assert not any(luhn_valid(f"7992739871{digit}") for digit in "012456789")
