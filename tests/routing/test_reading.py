"""Rules are read strictly, each error at its field, and written as they were read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kernel.rules import RULES_MAX, Match, RouteRule, Step, Target
from controlplane.routing.rulesjson import read_rules, read_rules_text, versioned, write_rules

NAMES = st.text("abc", min_size=1, max_size=3)
SETS = st.frozensets(NAMES, max_size=3)
RULES = st.builds(
    RouteRule,
    name=NAMES,
    match=st.builds(Match, aliases=SETS, tags=SETS, prompt_tokens_max=st.none() | st.just(9)),
    steps=st.lists(
        st.builds(
            Step,
            targets=st.lists(
                st.builds(Target, model=NAMES, pool=st.none() | NAMES, weight=st.integers(1, 3)),
                min_size=1,
                max_size=2,
            ).map(tuple),
            queue_s=st.sampled_from([0.0, 1.5, 30.0]),
        ),
        min_size=1,
        max_size=2,
    ).map(tuple),
    priority=st.none() | st.integers(0, 2),
    continues_lost=st.booleans(),
    widen=st.booleans(),
)


def errors_of(value: object) -> dict[str, list[str]]:
    with pytest.raises(ValidationError) as caught:
        read_rules(value)
    return dict(caught.value.message_dict)


@given(rules=st.lists(RULES, max_size=3))
def test_what_is_written_reads_the_same(rules: list[RouteRule]) -> None:
    assert read_rules(write_rules(rules)) == tuple(rules)


def test_defaults_are_not_written() -> None:
    plain = [{"name": "a", "steps": [{"targets": [{"model": "m"}]}]}]
    assert write_rules(read_rules(plain)) == plain


def test_tenants_are_read_in_every_form_and_written_in_the_public_one() -> None:
    one, other = "1" * 32, "2" * 32
    match = {
        "organizations": [f"org_{one}", str(UUID(other)), "x", f"key_{one}"],
        "projects": [one],
    }
    plain = [{"name": "a", "match": match, "steps": [{"targets": [{"model": "m"}]}]}]
    (rule,) = read_rules(plain)
    assert rule.match.organizations == {one, other, "x", f"key_{one}"}
    assert rule.match.projects == {one}
    assert write_rules([rule])[0]["match"] == {
        "organizations": sorted(["x", f"key_{one}", f"org_{one}", f"org_{other}"]),
        "projects": [f"proj_{one}"],
    }


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({"steps": []}, "rules[0].name"),
        ({"name": "a"}, "rules[0].steps"),
        ({"name": 1, "steps": []}, "rules[0].name"),
        ({"name": "a", "steps": [], "extra": 1}, "rules[0].extra"),
        ({"name": "a", "steps": [], "version": 3}, "rules[0].version"),
        ({"name": "a", "steps": [{"targets": [{}]}]}, "rules[0].steps[0].targets[0].model"),
        ({"name": "a", "steps": [{"targets": [{"model": "m", "weight": "3"}]}]},
         "rules[0].steps[0].targets[0].weight"),
        ({"name": "a", "steps": [], "match": {"aliases": "x"}}, "rules[0].match.aliases"),
        ("a", "rules[0]"),
    ],
)  # fmt: skip
def test_an_error_stands_at_its_field(rule: Any, field: str) -> None:
    (path,) = errors_of([rule])
    assert path == field


def test_every_rule_that_cannot_be_read_is_named() -> None:
    good = {"name": "a", "steps": []}
    assert list(errors_of([{}, good, {}])) == ["rules[0].name", "rules[2].name"]


def test_the_list_is_a_list_within_its_bound() -> None:
    assert list(errors_of({})) == ["rules"]
    assert list(errors_of([{}] * (RULES_MAX + 1))) == ["rules"]


def test_text_that_is_no_json_is_told_where() -> None:
    with pytest.raises(ValidationError, match="byte 6"):
        read_rules_text('[{"a" 1}]')


def test_labels_carry_the_version() -> None:
    (rule,) = versioned(read_rules([{"name": "a", "steps": []}]), 7)
    assert rule.label == "a@7"
