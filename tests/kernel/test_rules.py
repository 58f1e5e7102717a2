"""Routing rules: the first that matches decides, weights and shares are kept, bad ones refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kernel.ids import new_request_id
from controlplane.kernel.rules import (
    CanaryRules,
    Facts,
    Match,
    RouteRule,
    RuleBook,
    Step,
    Target,
    draw_of,
    first_match,
    mismatch,
    pick_target,
)

DRAWS = 1_000
ROUTING_DOC = Path(__file__).parents[2] / "docs" / "routing.md"
NAMES = st.sampled_from("abcd")
SOME = st.frozensets(NAMES, max_size=2)
TO_M = (Step(targets=(Target(model="m"),)),)
MATCHES = st.builds(
    Match,
    aliases=SOME,
    projects=SOME,
    tags=SOME,
    priorities=st.frozensets(st.integers(0, 2), max_size=2),
    prompt_tokens_min=st.integers(0, 10),
    prompt_tokens_max=st.none() | st.integers(0, 20),
)
RULES = st.lists(MATCHES, max_size=6).map(
    lambda matches: [
        RouteRule(name=f"r{place}", match=match, steps=TO_M) for place, match in enumerate(matches)
    ]
)
FACTS = st.builds(
    Facts,
    alias=NAMES,
    task=st.just("generate"),
    organization=st.just("o"),
    project=NAMES,
    tags=SOME,
    prompt_tokens=st.integers(0, 25),
    priority=st.integers(0, 2),
)
PLAIN = Facts(alias="a", task="generate", organization="o", project="p")


def rule(name: str, **match: object) -> RouteRule:
    """A rule to one model."""
    return RouteRule(name=name, match=msgspec.convert(match, Match), steps=TO_M)


def meets(match: Match, facts: Facts) -> bool:
    """All conditions, written the other way round."""
    last = match.prompt_tokens_max
    return (
        (not match.aliases or facts.alias in match.aliases)
        and (not match.projects or facts.project in match.projects)
        and (not match.tags or bool(match.tags & facts.tags))
        and (not match.priorities or facts.priority in match.priorities)
        and match.prompt_tokens_min <= facts.prompt_tokens
        and (last is None or facts.prompt_tokens <= last)
    )


@given(rules=RULES, facts=FACTS, draw=st.floats(0, 1, exclude_max=True))
def test_the_first_that_matches_decides(rules: list[RouteRule], facts: Facts, draw: float) -> None:
    expected = next((each for each in rules if meets(each.match, facts)), None)
    assert first_match(rules, facts) is expected
    assert RuleBook(rules).rule_for(facts, draw) == (expected, draw)


def test_order_decides() -> None:
    general, special = rule("general"), rule("special", aliases=["a"])
    other = msgspec.structs.replace(PLAIN, alias="other")
    assert first_match([general, special], PLAIN) is general
    assert first_match([special, general], PLAIN) is special
    assert first_match([special], other) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("aliases", ["b"]),
        ("tasks", ["embed"]),
        ("organizations", ["x"]),
        ("projects", ["x"]),
        ("tags", ["batch"]),
        ("priorities", [2]),
        ("prompt_tokens_min", 1),
        ("prompt_tokens_max", -1),
    ],
)
def test_a_condition_that_is_not_met_is_named(field: str, value: object) -> None:
    assert mismatch(rule("r", **{field: value}).match, PLAIN) == field
    assert mismatch(rule("r").match, PLAIN) is None


@given(
    weights=st.lists(st.integers(1, 1000), min_size=1, max_size=8),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_a_target_has_the_part_of_the_draws_that_its_weight_says(
    weights: list[int], draw: float
) -> None:
    targets = [Target(model=str(place), weight=weight) for place, weight in enumerate(weights)]
    place = int(pick_target(targets, draw).model)
    point = draw * sum(weights)
    # A draw at an edge may fall to either side.
    assert sum(weights[:place]) - 1e-6 <= point <= sum(weights[: place + 1]) + 1e-6


@given(permille=st.integers(0, 1000), weight=st.integers(1, 9))
def test_a_candidate_gets_its_share_and_leaves_the_draw_even(permille: int, weight: int) -> None:
    trial = CanaryRules(rules=(rule("new"),), share_permille=permille)
    book = RuleBook([rule("old")], trial)
    targets = [Target(model="x", weight=weight), Target(model="y")]
    followed: Counter[str] = Counter()
    picked: Counter[tuple[str, str]] = Counter()
    for number in range(DRAWS):
        found, rest = book.rule_for(PLAIN, number / DRAWS)
        assert found is not None and 0 <= rest <= 1
        followed[found.name] += 1
        picked[found.name, pick_target(targets, rest).model] += 1
    assert abs(followed["new"] - permille) <= 1
    for name in ("old", "new"):
        expected = followed[name] * weight / (weight + 1)
        assert abs(picked[name, "x"] - expected) <= 2


def test_a_request_draws_the_same_number_every_time_and_any_number() -> None:
    ids = [new_request_id() for _ in range(DRAWS)]
    draws = [draw_of(each) for each in ids]
    assert draws == [draw_of(each) for each in ids]
    assert all(0 <= draw < 1 for draw in draws)
    # 400 of 1000 would be six standard deviations off.
    assert 400 < sum(draw < 0.5 for draw in draws) < 600
    assert draw_of(b"\xff" * 16) < 1


def test_a_rule_survives_json_and_a_misspelled_field_does_not() -> None:
    made = RouteRule(
        name="chat",
        version=3,
        match=Match(tags=frozenset({"batch"}), prompt_tokens_max=100),
        steps=(Step(targets=(Target(model="m", pool="p", weight=2),), queue_s=0), *TO_M),
        priority=2,
        first_token_s=1.5,
    )
    assert msgspec.json.decode(msgspec.json.encode(made), type=RouteRule) == made
    assert made.label == "chat@3"
    with pytest.raises(msgspec.ValidationError, match="alias`"):
        msgspec.json.decode(b'{"name":"r","match":{"alias":["a"]},"steps":[]}', type=RouteRule)


def test_what_is_written_of_rules_is_so() -> None:
    text = ROUTING_DOC.read_text()
    written = text.split("```json")[1].split("```")[0]
    rule = msgspec.json.decode(written, type=RouteRule)
    assert msgspec.to_builtins(rule).keys() - json.loads(written).keys() == {"version"}
    assert {field for field in Match.__struct_fields__ if f"`{field}`" not in text} == set()
