"""Waste in requests: dead JSON, long prompts and answers, repeats; bounded whatever the text is."""

from __future__ import annotations

import json

import msgspec
import pytest

from controlplane.kernel.insights.fixes import CLIENTS, OTHER, client_of, code_for
from controlplane.kernel.insights.hygiene import (
    ANSWER_TOKENS_LONG,
    CHARS_MAX,
    DEAD_CHARS_LEAST,
    DEAD_JSON,
    HASTY,
    KINDS,
    NOT_STREAMED,
    OVERSIZED,
    RETRY,
    TOOLS_AGAIN,
    UNBOUNDED,
    VOLATILE,
    WAITED_TOKENS_LEAST,
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
        hasty=True,
        streams=False,
        tool_chars=4_000,
        tools_again=True,
    )
    found = find_waste(look)
    assert [one.kind for one in found] == list(KINDS)
    assert [one.nano for one in found if one.kind == VOLATILE] == [500]


def test_an_answer_that_was_waited_for_costs_time_and_no_money() -> None:
    waited = msgspec.structs.replace(CLEAN, streams=False, output_tokens=WAITED_TOKENS_LEAST + 1)
    (found,) = find_waste(waited)
    assert (found.kind, found.tokens, found.nano) == (NOT_STREAMED, WAITED_TOKENS_LEAST + 1, 0)
    assert find_waste(msgspec.structs.replace(waited, output_tokens=WAITED_TOKENS_LEAST)) == ()
    assert find_waste(msgspec.structs.replace(waited, streams=True)) == ()


def test_tools_that_came_before_cost_their_part_of_the_prompt() -> None:
    look = msgspec.structs.replace(
        CLEAN, texts=("x" * 1_000,), prompt_tokens=2_000, tool_chars=3_000, tools_again=True
    )
    (found,) = find_waste(look)
    # Three of four characters, at 100 nano-USD a token; a tenth of that where it was cached.
    assert (found.kind, found.tokens, found.nano) == (TOOLS_AGAIN, 1_500, 150_000)
    (cheap,) = find_waste(msgspec.structs.replace(look, cached_tokens=2_000))
    assert cheap.nano == 15_000
    assert find_waste(msgspec.structs.replace(look, tools_again=False)) == ()
    assert find_waste(msgspec.structs.replace(look, tool_chars=100)) == ()


@pytest.mark.parametrize(
    ("agent", "client"),
    [
        ("OpenAI/Python 3.52.0", "openai-python"),
        ("AsyncOpenAI/Python 2.8.0", "openai-python"),
        ("OpenAI/JS 6.49.0", "openai-node"),
        ("langchainjs-openai/1.0.0 ((node/v22.1.0; linux; x64))", "langchain-js"),
        ("langchain-openai/1.7.4 OpenAI/Python 3.57.0", "langchain"),
        ("Anthropic/Python 2.13.0", "anthropic-python"),
        ("ai/6.0.326 ai-sdk/provider-utils/4.0.0 runtime/node.js/v22", "ai-sdk"),
        ("curl/8.5.0", "curl"),
        ("Mozilla/5.0", "other"),
        (None, "other"),
    ],
)
def test_clients_are_known_by_their_user_agent(agent: str | None, client: str) -> None:
    assert client_of(agent) == client


@pytest.mark.parametrize("kind", [NOT_STREAMED, HASTY, RETRY, UNBOUNDED, TOOLS_AGAIN])
def test_every_client_has_code_for_what_code_mends(kind: str) -> None:
    assert all(code_for(kind, client) for client in CLIENTS)
    assert code_for(kind, OTHER) == code_for(kind, "curl") != code_for(kind, "openai-node")


def test_what_only_another_prompt_mends_has_no_code() -> None:
    assert not any(code_for(kind, "curl") for kind in (DEAD_JSON, OVERSIZED, VOLATILE))
