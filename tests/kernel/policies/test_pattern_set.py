"""Patterns without backtracking: they find what Python's own engine finds, and never take long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kernel.policies.pattern_set import PatternError, PatternSet


def spans(pattern: str, text: str) -> list[tuple[int, int]]:
    return [(start, end) for _, start, end in PatternSet([pattern]).find(text)]


@pytest.mark.parametrize(
    "pattern",
    [
        r"ACME-\d{4,6}", r"\bend\b", r"(?i)proj(ect)?[ _-]?x\b", r"[A-Z]{2}\d+|zz", "a(b|c)*d$",
        r"^a+", r"[^a-c\s]{2}", r"\Bb\B", r"x{2,}?y", r"(?:ab)+", r"\x41B", r"a.c",
    ],
)  # fmt: skip
@given(text=st.text(st.sampled_from("abcdxyzABCME-0123 _\nprojectPX"), max_size=40))
def test_it_finds_what_pythons_engine_finds(pattern: str, text: str) -> None:
    flags = re.DOTALL | re.ASCII
    wanted = [found.span() for found in re.finditer(pattern, text, flags)]
    if pattern.endswith("$"):  # Which is before a last new line, too, in Python.
        wanted = [span for span in wanted if span[1] == len(text)]
    assert spans(pattern, text) == wanted


@given(
    st.lists(st.sampled_from(["a", "b", "(a|b)", "a*", "(ab)+", "b{1,3}", "."]), min_size=1),
    st.text(st.sampled_from("abc"), max_size=30),
)
def test_a_match_is_one_of_pythons_and_none_is_missed(parts: list[str], text: str) -> None:
    pattern = "".join(parts[:6])
    if re.fullmatch(pattern, ""):
        with pytest.raises(PatternError):
            PatternSet([pattern])
        return
    found = spans(pattern, text)
    assert all(re.fullmatch(pattern, text[start:end], re.DOTALL) for start, end in found)
    gaps = zip([0, *(end for _, end in found)], [*(s for s, _ in found), len(text)], strict=True)
    assert not any(re.search(pattern, text[start:end], re.DOTALL) for start, end in gaps)


def test_several_patterns_are_told_apart_and_the_first_wins() -> None:
    found = PatternSet([r"\d+", "[a-z]+", "abc"]).find("abc 12")
    assert list(found) == [(1, 0, 3), (0, 4, 6)]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("pattern", [r"(a+)+b", r"(a|aa)*b", r"(a?){50}a{50}b", r"(.*)(.*)(.*)b"])
def test_what_would_hold_a_backtracking_engine_for_ever_does_not(pattern: str) -> None:
    assert spans(pattern, "a" * 20_000) == []


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("", "1 to 256"), ("a" * 257, "1 to 256"), ("(", "missing"), ("a)", "unexpected"),
        ("*", "no argument"), ("a{3,2}", "invalid repetition"), ("(?=a)", "invalid perl operator"),
        (r"(a)\1", "invalid escape"), ("[", "missing"), ("[z-a]", "invalid character class"),
        ("a*", "empty text"), ("((a{100}){100}){100}", "RE2"), ("(a)|(b)|", "empty text"),
    ],
)  # fmt: skip
def test_what_cannot_be_matched_so_is_refused_in_words(pattern: str, said: str) -> None:
    with pytest.raises(PatternError, match=re.escape(said)):
        PatternSet([pattern])
