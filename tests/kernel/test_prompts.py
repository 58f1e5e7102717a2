"""Templates as pure text: what is a placeholder, what a value can do, what caches."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kernel.prompts import (
    BadValue,
    PromptBody,
    PromptMessage,
    Variable,
    checked_values,
    filled,
    filled_bytes,
    find_problems,
    stable_bytes,
    stable_messages,
)


def body(*contents: str, variables: tuple[Variable, ...] = (), **more: Any) -> PromptBody:
    messages = tuple(PromptMessage("user", content) for content in contents)
    return PromptBody(messages=messages, variables=variables, **more)


NAME = Variable(name="name")
FIXED = body("Be brief.", "To {{name}}, of {{ name }}: \\{{name}}", variables=(NAME,))


@given(st.text())
def test_a_value_is_put_in_once_and_read_no_further(value: str) -> None:
    made = filled(FIXED, {"name": value})
    assert made[1].content == f"To {value}, of {value}: {{{{name}}}}"
    assert sum(len(each.content.encode("utf-8", "replace")) for each in made) == filled_bytes(
        FIXED, {"name": value}
    )


def test_what_is_before_the_first_variable_is_stable() -> None:
    assert stable_messages(FIXED) == (
        PromptMessage("user", "Be brief."),
        PromptMessage("user", "To "),
    )
    assert stable_bytes(FIXED) == len("Be brief.To ")
    assert stable_bytes(body("{{name}}", "fixed", variables=(NAME,))) == 0


def test_fixed_text_behind_a_variable_is_warned_of_with_its_size() -> None:
    (problem,) = find_problems(body("{{name}}", "fixed", variables=(NAME,)))
    assert problem.warning and "5 bytes" in problem.message
    assert find_problems(body("fixed", "{{name}}", variables=(NAME,))) == []


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        (body("{{other}}", variables=(NAME,)), "messages[0].content"),
        (body("{{ }} {{name}}", variables=(NAME,)), "messages[0].content"),
        (body("x" * 70_000), "messages"),
        (body("{{name}}", variables=(NAME, NAME)), "variables[1].name"),
        (body("{{n}}", variables=(Variable(name="n", type="choice"),)), "variables[0].choices"),
        (body("{{n}}", variables=(Variable(name="n", choices=("a",)),)), "variables[0].choices"),
        (
            body("{{n}}", variables=(Variable(name="n", type="integer", least=2, most=1),)),
            "variables[0].least",
        ),
        (
            body("{{n}}", variables=(Variable(name="n", type="integer", default="1"),)),
            "variables[0].default",
        ),
    ],
)
def test_errors_are_told_at_their_field(broken: PromptBody, field: str) -> None:
    assert field in {each.field for each in find_problems(broken) if not each.warning}


TYPED = body(
    "{{text}} {{count}} {{tone}} {{more}}",
    variables=(
        Variable(name="text", chars_max=5),
        Variable(name="count", type="integer", least=1, most=3, default=2),
        Variable(name="tone", type="choice", choices=("dry", "warm"), default="dry"),
        Variable(name="more", required=False),
    ),
    values_chars_max=12,
)


def test_defaults_and_what_is_not_required() -> None:
    values = checked_values(TYPED, {"text": "abc"})
    assert values == {"text": "abc", "count": "2", "tone": "dry", "more": ""}


@pytest.mark.parametrize(
    ("given", "name", "code"),
    [
        ({}, "text", "missing_required_parameter"),
        ({"text": "abcdef"}, "text", None),
        ({"text": 1}, "text", None),
        ({"text": "a", "count": 4}, "count", None),
        ({"text": "a", "count": True}, "count", None),
        ({"text": "a", "count": "1"}, "count", None),
        ({"text": "a", "tone": "loud"}, "tone", None),
        ({"text": "a", "none": "x"}, "none", "unknown_parameter"),
        ({"text": "abcde", "more": "abcde"}, "", None),
    ],
)
def test_a_value_that_does_not_fit_is_named(
    given: dict[str, str | int], name: str, code: str | None
) -> None:
    with pytest.raises(BadValue) as refused:
        checked_values(TYPED, given)
    assert (refused.value.name, refused.value.code) == (name, code)


def test_a_body_survives_its_form() -> None:
    assert msgspec.convert(msgspec.to_builtins(TYPED), PromptBody) == TYPED
