"""Routing rules: the first that matches, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from controlplane.kernel.rules import first_match


@dataclass(frozen=True)
class Rule:
    """A rule as the kernel sees it."""

    alias: str | None
    project: str | None
    model: str


MAYBE = st.none() | st.sampled_from("abc")
RULES = st.lists(st.builds(Rule, alias=MAYBE, project=MAYBE, model=st.just("m")), max_size=6)


@given(rules=RULES, alias=st.sampled_from("abcd"), project=st.sampled_from("abcd"))
def test_first_that_matches(rules: list[Rule], alias: str, project: str) -> None:
    found = first_match(rules, alias, project)
    matching = [
        rule
        for rule in rules
        if (rule.alias is None or rule.alias == alias)
        and (rule.project is None or rule.project == project)
    ]
    assert found is (matching[0] if matching else None)


def test_order_decides() -> None:
    general, special = Rule(None, None, "small"), Rule("large", None, "big")
    assert first_match([general, special], "large", "p") is general
    assert first_match([special, general], "large", "p") is special
    assert first_match([special], "other", "p") is None
