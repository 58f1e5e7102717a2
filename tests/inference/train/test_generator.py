"""The generated text: a seed names it, every family appears, and answers are right."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import islice
from random import Random

import pytest

from inference.train.data import hotels, lookup, numbers
from inference.train.data.compose import (
    FAMILIES,
    FOLLOW_UP,
    IN_ORDER,
    LONG_FAMILIES,
    MEMORY,
    PLAIN,
    dialogue,
    held_out_stream,
    training_stream,
)
from inference.train.data.dialogue import Family, is_held_out

DIALOGUES = 3_000
ROUNDS = 300


def test_same_seed_gives_the_same_text() -> None:
    first = list(islice(training_stream(3, long_share=0.2), 500))
    assert first == list(islice(training_stream(3, long_share=0.2), 500))
    assert first != list(islice(training_stream(4, long_share=0.2), 500))


def test_every_family_appears() -> None:
    seen = Counter(one.family for one in islice(training_stream(1, long_share=0.1), DIALOGUES))
    assert set(seen) == {*FAMILIES, *LONG_FAMILIES, MEMORY, FOLLOW_UP, PLAIN}


def test_lists_in_order_are_mixed_in_only_where_asked_for() -> None:
    seen = Counter(one.family for one in islice(training_stream(1, in_order_share=0.1), 1_000))
    assert 50 < seen[IN_ORDER] < 150
    lists = list(islice(training_stream(1, in_order_share=0.5), 200))
    firsts = {one.turns[-1].text.splitlines()[1] for one in lists if one.family == IN_ORDER}
    assert len(firsts) == 1


def test_turns_alternate_and_end_with_an_answer() -> None:
    for one in islice(training_stream(2, long_share=0.1), DIALOGUES):
        assert all(turn.text == turn.text.strip() and turn.text for turn in one.turns)
        roles = [turn.role for turn in one.turns]
        if one.family == PLAIN:
            assert roles == ["text"]
            continue
        if roles[0] == "system":
            roles = roles[1:]
        assert roles
        assert roles == ["user", "assistant"] * (len(roles) // 2)


def test_answers_contain_what_a_right_answer_must() -> None:
    rng = Random(8)
    for _ in range(DIALOGUES):
        one = dialogue(rng)
        assert all(piece in one.turns[-1].text for piece in one.must), one


def test_training_and_evaluation_do_not_share_a_question() -> None:
    for one in islice(training_stream(5), DIALOGUES):
        assert not any(is_held_out(turn.text) for turn in one.turns if turn.role == "user")
    for one in islice(held_out_stream(5), 100):
        assert one.held_out


def test_no_placeholder_is_left_in_the_text() -> None:
    for one in islice(training_stream(6, long_share=0.1), DIALOGUES):
        for turn in one.turns:
            if not turn.text.startswith('{"'):
                assert not re.search(r"\{[a-z_]+\}", turn.text), turn.text


@pytest.mark.parametrize(
    "family", [numbers.arithmetic, numbers.chain, numbers.word_problem, numbers.units]
)
def test_sums_are_right(family: Family) -> None:
    rng = Random(9)
    for _ in range(ROUNDS):
        answer = family(rng).answer
        for a, sign, b, result in re.findall(r"(\d+) ([-+*/]) (\d+) = (-?\d+)", answer):
            left, right = int(a), int(b)
            made = {
                "+": left + right,
                "-": left - right,
                "*": left * right,
                "/": left // (right or 1),
            }[sign]
            assert made == int(result), answer


def test_the_suggested_hotel_is_the_cheapest_that_fits() -> None:
    rng = Random(10)
    for _ in range(ROUNDS):
        choice, wishes = hotels.make_hotels(rng, 4), hotels.make_wishes(rng)
        notes, best = hotels.verdict(choice, wishes)
        fitting = [one for one in choice if wishes.objection(one) is None]
        assert notes.count("fits") == len(fitting)
        assert best == (min(fitting, key=lambda one: one.price) if fitting else None)


def test_json_answers_parse_and_have_the_asked_keys() -> None:
    rng = Random(11)
    for _ in range(ROUNDS):
        exchange = lookup.record(rng)
        assert all(key in exchange.question for key in json.loads(exchange.answer))


def test_context_answers_stand_in_the_context() -> None:
    rng = Random(12)
    for _ in range(ROUNDS):
        exchange = lookup.context(rng)
        assert exchange.answer in exchange.question or "does not say" in exchange.answer
