"""Rules are held against what there is: names, tasks, bounds, and rules that never apply."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kernel.rules import Facts, Match, mismatch
from controlplane.routing.checks import KnownNames, RuleProblem, covers, find_problems
from controlplane.routing.rulesjson import read_rules
from tests.support.rules import generates, rule

ACME = "a" * 32
NAMES = KnownNames(
    models={"large": "generate", "small": "generate", "vector": "embed"},
    pools=dict.fromkeys(("default", "big", "spare", "first"), "generate") | {"vectors": "embed"},
    organizations=frozenset({ACME}),
    projects=frozenset({"b" * 32}),
    prefill_only=frozenset({"first"}),
    own_pools={"large": "default", "small": "default", "vector": "vectors"},
    serving=frozenset(
        (model, pool) for model in ("large", "small", "vector") for pool in ("default", "vectors")
    )
    | {("small", "big")},
)
VALUES = st.frozensets(st.sampled_from("xy"), max_size=2)
MATCHES = st.builds(
    Match,
    aliases=VALUES,
    tags=VALUES,
    tasks=st.frozensets(st.sampled_from(["generate", "embed"]), max_size=1),
    prompt_tokens_min=st.integers(0, 3),
    prompt_tokens_max=st.none() | st.integers(0, 4),
)
FACTS = st.builds(
    Facts,
    alias=st.sampled_from("xyz"),
    task=st.sampled_from(["generate", "embed"]),
    organization=st.just("o"),
    project=st.just("p"),
    tags=VALUES,
    prompt_tokens=st.integers(0, 5),
)


def problems(*rules: dict[str, Any]) -> list[RuleProblem]:
    return find_problems(read_rules(list(rules)), NAMES)


def fields(*rules: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(problem.field, problem.warning) for problem in problems(*rules)]


def to(**target: Any) -> dict[str, Any]:
    return generates("a", "large") | {"steps": [{"targets": [{"model": "large", **target}]}]}


def test_rules_that_are_right_have_no_problem() -> None:
    first = generates(
        "big-prompts", "large", aliases=["small"], organizations=[ACME], prompt_tokens_min=8_000
    )
    first["steps"].append({"targets": [{"model": "small", "pool": "big"}], "queue_s": 0})
    vectors = rule("vectors", "vector", match={"tasks": ["embed"]})
    assert problems(first, vectors, generates("rest", "small")) == []


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        (generates("a b", "large"), "rules[0].name"),
        (generates("direct", "large"), "rules[0].name"),
        (generates("a", "huge"), "rules[0].steps[0].targets[0].model"),
        (to(pool="none"), "rules[0].steps[0].targets[0].pool"),
        (to(pool="vectors"), "rules[0].steps[0].targets[0].pool"),
        (to(pool="first"), "rules[0].steps[0].targets[0].pool"),
        (to(weight=0), "rules[0].steps[0].targets[0].weight"),
        (to(weight=1_001), "rules[0].steps[0].targets[0].weight"),
        (generates("a", "large") | {"steps": []}, "rules[0].steps"),
        (generates("a", "large") | {"steps": [{"targets": []}]}, "rules[0].steps[0].targets"),
        (generates("a", "large") | {"priority": 3}, "rules[0].priority"),
        (generates("a", "large") | {"deadline_s": 0}, "rules[0].deadline_s"),
        (generates("a", "large") | {"first_token_s": 0}, "rules[0].first_token_s"),
        (generates("a", "large") | {"degrade_order": -1}, "rules[0].degrade_order"),
        (generates("a", "large", priorities=[9]), "rules[0].match.priorities"),
        (generates("a", "large", organizations=["c" * 32]), "rules[0].match.organizations"),
        (generates("a", "large", projects=["c" * 32]), "rules[0].match.projects"),
        (generates("a", "large", prompt_tokens_min=-1), "rules[0].match.prompt_tokens_min"),
        (generates("a", "large", prompt_tokens_min=9, prompt_tokens_max=8),
         "rules[0].match.prompt_tokens_max"),
        (generates("a", "large", aliases=[f"a{n}" for n in range(65)]), "rules[0].match.aliases"),
        (rule("a", "large", match={"tasks": ["chat"]}), "rules[0].match.tasks"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_at_its_field(broken: dict[str, Any], field: str) -> None:
    assert fields(broken) == [(field, False)]


def test_a_step_waits_within_its_bound() -> None:
    step = {"targets": [{"model": "large"}], "queue_s": 601}
    assert fields(generates("a", "large") | {"steps": [step]}) == [
        ("rules[0].steps[0].queue_s", False)
    ]


def test_no_request_reaches_a_model_of_another_task() -> None:
    target = [("rules[0].steps[0].targets[0].model", False)]
    assert fields(rule("a", "large")) == target
    assert fields(rule("a", "large", match={"tasks": ["embed"]})) == target
    assert fields(rule("a", "vector")) == target
    assert fields(rule("a", "vector", match={"aliases": ["large"]})) == target
    assert fields(rule("a", "large", match={"aliases": ["chat-alias"]})) == target
    # A model's own name says what its requests ask for.
    assert fields(rule("a", "large", match={"aliases": ["small", "large"]})) == []


def test_a_name_stands_once() -> None:
    twice = (generates("a", "large", aliases=["x"]), generates("a", "small"))
    assert fields(*twice) == [("rules[1].name", False)]


def test_a_rule_below_one_that_takes_everything_is_warned_of() -> None:
    found = problems(generates("all", "large"), generates("some", "small", aliases=["x"]))
    assert [(one.field, one.warning) for one in found] == [("rules[1]", True)]
    assert "'all'" in found[0].message


def test_steps_that_change_nothing_are_warned_of() -> None:
    step = {"targets": [{"model": "large"}], "queue_s": 20}
    again = generates("a", "large") | {"steps": [step, step]}
    assert fields(again) == [("rules[0].steps[1]", True)]
    late = generates("a", "large") | {"steps": [step, {"targets": [{"model": "small"}]}]}
    assert fields(late | {"deadline_s": 20}) == [("rules[0].steps[1]", True)]
    assert fields(late | {"deadline_s": 21}) == []


@given(wider=MATCHES, narrower=MATCHES, facts=FACTS)
def test_what_covers_matches_whatever_the_covered_does(
    wider: Match, narrower: Match, facts: Facts
) -> None:
    if covers(wider, narrower) and mismatch(narrower, facts) is None:
        assert mismatch(wider, facts) is None


@given(match=MATCHES)
def test_a_match_covers_itself(match: Match) -> None:
    assert covers(match, match)


def test_a_target_that_nothing_can_serve_now_is_a_warning_beside_it() -> None:
    (empty,) = problems(to(pool="spare"))
    assert (empty.field, empty.warning) == ("rules[0].steps[0].targets[0]", True)
    assert "the pool 'spare' has no node that serves now" in empty.message
    (other,) = problems(to(pool="big"))
    assert "the pool 'big' has no node with 'large' now" in other.message
    (unknown,) = problems(to(model="none-such"))
    assert (unknown.field, unknown.warning) == ("rules[0].steps[0].targets[0].model", False)
