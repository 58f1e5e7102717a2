"""The form of a draft says what its JSON says, whatever the rules; buttons change both."""

from __future__ import annotations

from typing import Any

import msgspec
from django.http import QueryDict
from django.template import Context, Template
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.kernel.rules import SIZE_CLASSES, Match, RouteRule, Step, Target
from controlplane.routing.rulesjson import read_rules, write_rules
from frontend.routing import editor
from frontend.routing.editor import (
    FormRule,
    form_act,
    form_of,
    form_read,
    listed_text,
    listed_values,
)
from frontend.routing.form_rows import RuleForm
from frontend.routing.rows import rule_rows
from tests.support.forms import fields_of
from tests.support.rules import generates

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,5}", fullmatch=True)
SETS = st.frozensets(WORDS, max_size=3)
TARGETS = st.builds(
    Target,
    model=NAMES,
    pool=st.none() | NAMES,
    weight=st.integers(1, 1_000),
    size_class=st.none() | st.sampled_from(SIZE_CLASSES),
)
STEPS = st.builds(
    Step,
    targets=st.lists(TARGETS, min_size=1, max_size=3).map(tuple),
    queue_s=st.floats(0, 600) | st.integers(0, 600).map(float),
)
MATCHES = st.builds(
    Match,
    aliases=SETS,
    tags=SETS,
    organizations=st.frozensets(st.sampled_from(["a" * 32, "b" * 32])),
    projects=st.frozensets(st.sampled_from(["c" * 32, "d" * 32])),
    tasks=st.frozensets(st.sampled_from(["generate", "embed"])),
    priorities=st.frozensets(st.integers(0, 2)),
    prompt_tokens_min=st.integers(0, 10_000_000),
    prompt_tokens_max=st.none() | st.integers(0, 10_000_000),
)
RULES = st.builds(
    RouteRule,
    name=NAMES,
    match=MATCHES,
    steps=st.lists(STEPS, min_size=1, max_size=3).map(tuple),
    priority=st.none() | st.integers(0, 2),
    deadline_s=st.none() | st.integers(1, 3_600),
    first_token_s=st.none() | st.floats(0.001, 600),
    degrade_order=st.none() | st.integers(0, 1_000),
    continues_lost=st.booleans(),
    widen=st.booleans(),
    shadow_class=st.none() | st.sampled_from(SIZE_CLASSES),
)
FORM = Template(
    '{% for rule in form %}{% include "routing/parts/rule_form.html" with edit="/" %}{% endfor %}'
)


def posted(rules: list[FormRule]) -> QueryDict:
    """What a browser would send of the form as it is shown."""
    words = {} if any(each.open for each in rules) else dict(enumerate(rule_rows(read(rules), {})))
    form = RuleForm([], ["m"], ["p"])
    shown = [form.row(place, each, words.get(place)) for place, each in enumerate(rules)]
    return fields_of(FORM.render(Context({"form": shown, "focus": ""})))


def read(rules: list[FormRule]) -> tuple[RouteRule, ...]:
    return read_rules([each.rule for each in rules])


def content(rules: list[FormRule]) -> list[dict[str, Any]]:
    return write_rules(read(rules))


@settings(deadline=None, max_examples=60)
@given(st.lists(RULES, max_size=2))
def test_the_form_of_rules_is_their_json(rules: list[RouteRule]) -> None:
    plain = write_rules(rules)
    for is_open in (True, False):
        shown = [FormRule(each, is_open) for each in plain]
        assert content(form_read(posted(shown))) == plain


@given(st.lists(WORDS, max_size=5, unique=True))
def test_any_values_can_be_typed_as_a_list(values: list[str]) -> None:
    assert sorted(listed_values(listed_text(values))) == sorted(values)


def test_lists_are_read_as_people_type_them() -> None:
    assert listed_values(' a,b , "c, d" ,, "e') == ["a", "b", "c, d", '"e']


def test_the_form_knows_every_field_of_rules() -> None:
    def fields(of: type[msgspec.Struct]) -> set[str]:
        return {field.name for field in msgspec.structs.fields(of)}

    assert fields(Match) == {*editor.LISTS, *editor.BOXES, *editor.SIZES}
    rest = {"name", "version", "match", "steps", "shadow_class"}
    assert fields(RouteRule) == {*editor.NUMBERS, *editor.FLAGS, *rest}
    assert fields(Step) == {"targets", "queue_s"}
    assert fields(Target) == {"model", "pool", "weight", "size_class"}


def test_buttons_add_move_and_remove_and_say_what_is_looked_at_next() -> None:
    rules = form_of([generates("a", "m"), generates("b", "m")])
    assert form_act(rules, "up-1") == "up-0"
    assert [each.rule["name"] for each in rules] == ["b", "a"]
    assert form_act(rules, "up-0") == "up-0"
    assert form_act(rules, "open-1") == "rule-1"
    assert [each.open for each in rules] == [False, True]
    assert form_act(rules, "add-1") == "rule-1-steps-1"
    assert form_act(rules, "add-1-1") == "rule-1-steps-1-targets-1"
    rules[1].rule["steps"][1]["targets"][0]["model"] = "n"
    assert form_act(rules, "down-1-1-0") == "down-1-1-1"
    assert [each["model"] for each in rules[1].rule["steps"][1]["targets"]] == ["", "n"]
    assert form_act(rules, "remove-1-1-0") == "add-1-1"
    assert form_act(rules, "up-1-1") == "up-1-0"
    assert rules[1].rule["steps"][0] == {"targets": [{"model": "n"}]}
    assert form_act(rules, "close-1") == "open-1"
    assert form_act(rules, "add-") == "rule-2"
    assert form_act(rules, "remove-2") == "add-"
    assert len(rules) == 2


def test_buttons_of_nothing_change_nothing() -> None:
    rules = form_of([generates("a", "m")])
    for act in (
        "",
        "check",
        "up",
        "up-",
        "remove-9",
        "down-0-7",
        "add-0-0-0",
        "close-0-0",
        "up-0-0-0-0",
    ):
        assert form_act(rules, act) == ""
    assert rules == form_of([generates("a", "m")])


def test_steps_and_targets_have_their_bounds() -> None:
    rules = form_of([generates("a", "m")])
    for _ in range(9):
        form_act(rules, "add-0")
        form_act(rules, "add-0-0")
    assert len(rules[0].rule["steps"]) == 4
    assert len(rules[0].rule["steps"][0]["targets"]) == 8
