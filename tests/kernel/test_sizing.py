"""The size classifier: every request gets a class with reasons, quickly, whatever is in it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.sizes.texts import KINDS, UNSEEN, Maker
from controlplane.kernel.rules import SIZE_CLASSES, SizeClass, Target, class_targets
from controlplane.kernel.sizing.classifier import (
    CLASSIFIER,
    REASONS_MAX,
    WEIGHTS,
    SizeClassifier,
    SizeWeights,
)
from controlplane.kernel.sizing.features import FEATURES, QUESTION_CHARS_MAX, AskShape, features_of

COUNTS = st.integers(0, 10_000_000)
SHAPES = st.builds(
    AskShape,
    prompt_tokens=COUNTS,
    question=st.text(max_size=300) | st.text("`{};1.\n?why ", max_size=3 * QUESTION_CHARS_MAX),
    code_blocks=COUNTS,
    turns=COUNTS,
    tools=COUNTS,
    tool_results=COUNTS,
    schema=st.booleans(),
    output_tokens=st.none() | COUNTS,
    effort=st.sampled_from(["", "none", "high", "odd"]),
    images=COUNTS,
)
WANTED = st.sampled_from(SIZE_CLASSES)


@given(SHAPES)
def test_any_request_gets_a_class_a_probability_and_reasons(shape: AskShape) -> None:
    size, probability, why = CLASSIFIER.classify(shape)
    assert size in SIZE_CLASSES
    assert 0 <= probability <= 1
    assert len(why) <= REASONS_MAX
    assert all(why)
    assert CLASSIFIER.classify(shape) == (size, probability, why)


@given(SHAPES)
def test_there_is_one_number_for_each_feature(shape: AskShape) -> None:
    assert len(features_of(shape)) == len(FEATURES)


def test_only_the_ends_of_a_long_question_are_read() -> None:
    begin, end = "why? " * QUESTION_CHARS_MAX, " derive it" * QUESTION_CHARS_MAX
    long = AskShape(prompt_tokens=9, question=begin + "{};=<>" * 99_999 + end)
    short = msgspec.structs.replace(long, question=begin + end)
    assert features_of(long) == features_of(short)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        (AskShape(prompt_tokens=12, question="What is the capital of Peru?"), "small"),
        (AskShape(prompt_tokens=30, question="Translate to German: good day."), "small"),
        (
            AskShape(prompt_tokens=2_500, question="Summarize this in five bullets."),
            "medium",
        ),
        (
            AskShape(
                prompt_tokens=9_000,
                question="Why does it deadlock? Debug the race and prove the fix correct.",
                code_blocks=3,
                tools=12,
                tool_results=9,
                turns=20,
            ),
            "large",
        ),
    ],
)
def test_plain_cases_are_told_apart(shape: AskShape, size: str) -> None:
    assert CLASSIFIER.classify(shape).size_class == size


def test_the_reasons_are_what_sets_the_request_apart() -> None:
    shape = AskShape(prompt_tokens=2_100, question="Fix it.", code_blocks=1, tools=30, turns=9)
    verdict = CLASSIFIER.classify(shape)
    assert verdict.size_class == "large"
    assert "30 tools" in verdict.why


def test_weights_of_other_features_are_refused() -> None:
    weights = msgspec.json.decode(WEIGHTS.read_bytes(), type=SizeWeights)
    known = {each.name for each in FEATURES}
    assert weights.weights.keys() == weights.means.keys() == known
    with pytest.raises(KeyError):
        SizeClassifier(msgspec.structs.replace(weights, weights={}))


def test_requests_are_made_the_same_every_time_and_apart_from_those_trained_on() -> None:
    assert Maker(1).make(60) == Maker(1).make(60)
    trained, held = Maker(1).make(900), Maker(1, held_out=True).make(900)
    assert not {ask.kind for ask in trained} & UNSEEN
    assert {ask.kind for ask in trained} == {kind.name for kind in KINDS} - UNSEEN
    assert {ask.kind for ask in Maker(1, unseen=True).make(90)} == UNSEEN
    halves = [{kind.phrases.index(each) for each in kind.phrases} for kind in KINDS]
    assert all(len(half) >= 2 for half in halves)
    assert len(held) == len(trained)


@given(st.lists(st.none() | WANTED, min_size=1, max_size=6), WANTED)
def test_a_class_that_is_not_there_is_served_by_the_next_larger(
    classes: list[SizeClass | None], wanted: SizeClass
) -> None:
    targets = tuple(Target(model=str(n), size_class=each) for n, each in enumerate(classes))
    found = class_targets(targets, wanted)
    assert found
    served = {each.size_class for each in found}
    if wanted in classes or None in classes:
        assert served <= {wanted, None}
    else:
        places = [SIZE_CLASSES.index(each) for each in classes if each is not None]
        larger = [place for place in places if place > SIZE_CLASSES.index(wanted)]
        assert served == {SIZE_CLASSES[min(larger) if larger else max(places)]}
