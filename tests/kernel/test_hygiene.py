"""Waste in requests: dead JSON, long prompts and answers, repeats; bounded whatever the text is."""

from __future__ import annotations

import json

import msgspec
import pytest

from controlplane.kernel.insights.hygiene import (
    ANSWER_TOKENS_LONG,
    CHARS_MAX,
    DEAD_CHARS_LEAST,
    DEAD_JSON,
    KINDS,
    OVERSIZED,
    RETRY,
    UNBOUNDED,
    VOLATILE,
    Dead,
    Look,
    dead_json,
    find_waste,
    large_from,
)
from controlplane.kernel.price import Price

PRICE = Price(version=1, input_pico=100_000, cached_pico=10_000, output_pico=400_000)
CLEAN = Look(
    texts=("What is a hotel?",),
    prompt_tokens=100,
    cached_tokens=0,
    window_tokens=4_096,
    output_tokens=20,
    named_bound=True,
    price=PRICE,
)
HOTEL = {
    "name": "Harbour", "stars": 4, "note": None, "fax": "", "tags": [],
    "rooms": [{"number": 1, "view": None}, {"number": 2, "extras": {}}],
}  # fmt: skip


def test_a_clean_request_has_no_finding() -> None:
    assert find_waste(CLEAN) == ()


def test_dead_json_counts_what_a_compact_writer_would_leave_out() -> None:
    printed = json.dumps(HOTEL, indent=4)
    kept = '{"name":"Harbour","stars":4,"rooms":[{"number":1},{"number":2}]}'
    found = dead_json([f"Here it is: {printed} Which room has a view?"])
    assert found == Dead(chars=len(printed) - len(kept), nulls=2, empties=3)


def test_a_field_that_is_given_again_is_dead() -> None:
    text = json.dumps({"city": "Bergen " * 10})
    twice = f"{text[:-1]},{text[1:]}"
    assert dead_json([twice]).repeated == 1
    assert dead_json([text]) == Dead()


def test_compact_json_prose_and_code_are_no_waste() -> None:
    texts = [
        json.dumps({"a": [1, 2, 3] * 40}, separators=(",", ":")),
        "See [1] and [2] {as told} in the list. " * 40,
        "for (;;) { if (x[0]) { break; } }\n" * 40,
    ]
    assert dead_json(texts) == Dead()


def test_a_little_is_not_worth_a_word() -> None:
    short = '{"a": 1, "b": null}'
    assert len(short) < DEAD_CHARS_LEAST
    assert dead_json([short]) == Dead()


def test_broken_json_counts_nothing_of_what_was_read_of_it() -> None:
    assert dead_json(['{"a": null, "b": null, ' + " " * 200 + "oops"]) == Dead()


@pytest.mark.parametrize(
    "text",
    ["[" * CHARS_MAX, '{"a":' * 4_000, '["' + "x" * CHARS_MAX, '{"n": ' + "9" * 10_000 + "}"],
)
def test_hostile_text_ends_the_search(text: str) -> None:
    assert dead_json([text]) == Dead()


def test_no_more_than_the_bound_is_looked_at() -> None:
    waste = json.dumps(HOTEL, indent=4)
    assert dead_json(["x" * CHARS_MAX, waste]) == Dead()
    assert dead_json(["x" * (CHARS_MAX - len(waste)), waste]).chars > 0


def test_dead_json_is_priced_at_this_prompts_own_rate() -> None:
    printed = json.dumps(HOTEL, indent=4)
    look = msgspec.structs.replace(CLEAN, texts=(printed,), prompt_tokens=len(printed))
    (found,) = find_waste(look)
    # One token a character, none of them cached: 100 nano-USD each, rounded down once.
    assert found.kind == DEAD_JSON
    assert found.tokens == dead_json([printed]).chars
    assert found.nano == pytest.approx(found.tokens * PRICE.input_pico / 1_000, abs=1)


def test_cached_tokens_save_what_cached_tokens_cost() -> None:
    large = msgspec.structs.replace(CLEAN, prompt_tokens=3_000)
    cached = msgspec.structs.replace(large, cached_tokens=3_000)
    (dear,), (cheap,) = find_waste(large), find_waste(cached)
    assert dear.kind == cheap.kind == OVERSIZED
    assert dear.tokens == 3_000 - large_from(4_096)
    assert cheap.nano * 10 == dear.nano


def test_a_long_answer_is_waste_only_where_nobody_bounded_it() -> None:
    long = msgspec.structs.replace(CLEAN, output_tokens=ANSWER_TOKENS_LONG + 10)
    assert find_waste(long) == ()
    (found,) = find_waste(msgspec.structs.replace(long, named_bound=False))
    assert (found.kind, found.tokens, found.nano) == (UNBOUNDED, 10, 4_000)


def test_a_retry_wasted_all_of_it() -> None:
    (found,) = find_waste(msgspec.structs.replace(CLEAN, repeated=True))
    assert (found.kind, found.tokens, found.nano) == (RETRY, 120, 100 * 100 + 20 * 400)


def test_findings_come_in_the_order_of_the_table() -> None:
    look = msgspec.structs.replace(
        CLEAN,
        texts=(json.dumps(HOTEL, indent=4),),
        prompt_tokens=3_000,
        output_tokens=1_000,
        named_bound=False,
        volatile_tokens=64,
        volatile_nano=500,
        repeated=True,
    )
    found = find_waste(look)
    assert [one.kind for one in found] == list(KINDS)
    assert [one.nano for one in found if one.kind == VOLATILE] == [500]
