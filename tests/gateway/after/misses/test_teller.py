"""Each cause of a miss, told of prompts of the shipped model's own tokenizer."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.gateway.after.misses.explain import Offered
from controlplane.gateway.after.misses.teller import Inquiry, MissTeller, Prompted
from controlplane.kernel.price import Price
from controlplane.kernel.receipt import Miss
from inference.contract.assets import ASSET_FILES
from inference.contract.blocks import chain_hashes
from inference.text.model_text import ModelText
from tests.support.shipped import SHIPPED

SIZE = 16
PRICE = Price(version=1, input_pico=1_000_000, cached_pico=250_000, output_pico=4_000_000)
TEXT = ModelText.from_files({name: (SHIPPED / name).read_bytes() for name in ASSET_FILES})
RULES = "You answer questions on hotels. Be short, be kind and never invent a price. " * 4


def tell(
    teller: MissTeller,
    words: str,
    *,
    tenant: bytes = b"a",
    tools: tuple[str, ...] = (),
    content: bool = True,
    **offered: Any,
) -> Miss | None:
    tokens = TEXT.encode(words, add_special=False)
    asked = {"caches": True, "delivered": 0, "predicted": 0, "available": 0, **offered}
    return teller.tell(
        Inquiry(
            prompted=Prompted(
                tenant=tenant,
                tokens=tokens,
                chains={SIZE: chain_hashes(tokens, SIZE, tenant)},
                tools=tools,
                text=TEXT,
                content=content,
            ),
            offered=Offered(block_size=SIZE, prompt=len(tokens), **asked),
            price=PRICE,
            prefill_tokens_per_s=1000.0,
        )
    )


def told(miss: Miss | None) -> Miss:
    assert miss is not None
    return miss


def blocks(words: str) -> int:
    return (len(TEXT.encode(words, add_special=False)) - 1) // SIZE * SIZE


@pytest.fixture
def teller() -> MissTeller:
    return MissTeller()


def test_a_short_prompt_has_no_block(teller: MissTeller) -> None:
    assert told(tell(teller, "Hello.")).cause == "below_block_size"


def test_an_engine_without_a_cache_is_told_and_its_prompts_are_no_one_elses_past(
    teller: MissTeller,
) -> None:
    missed = told(tell(teller, RULES, caches=False))
    assert (missed.cause, missed.avoidable_tokens, missed.cost_nano) == ("no_cache", 0, 0)
    assert told(tell(teller, RULES)).cause == "first_seen"


def test_a_whole_hit_is_no_miss(teller: MissTeller) -> None:
    assert tell(teller, RULES, delivered=blocks(RULES)) is None


def test_a_first_prompt_is_new(teller: MissTeller) -> None:
    miss = told(tell(teller, RULES))
    assert (miss.cause, miss.missed_tokens, miss.avoidable_tokens) == (
        "first_seen", blocks(RULES), 0,
    )  # fmt: skip
    assert (miss.cost_nano, miss.block) == (0, None)


def test_what_was_seen_and_is_nowhere_was_evicted(teller: MissTeller) -> None:
    tell(teller, RULES)
    miss = told(tell(teller, RULES))
    assert (miss.cause, miss.avoidable_tokens) == ("evicted", blocks(RULES))
    # 0.75 micro-USD of a million tokens each: 750 nano-USD per thousand.
    assert miss.cost_nano == blocks(RULES) * 750
    assert miss.prefill_ms == blocks(RULES)


def test_a_busier_node_had_it(teller: MissTeller) -> None:
    tell(teller, RULES)
    miss = told(tell(teller, RULES, available=64))
    assert (miss.cause, miss.avoidable_tokens) == ("other_node", 64)


def test_the_chosen_node_did_not_keep_it(teller: MissTeller) -> None:
    tell(teller, RULES)
    assert told(tell(teller, RULES, available=64, predicted=64)).cause == "not_kept"


def test_another_tenants_text_is_not_shared(teller: MissTeller) -> None:
    tell(teller, RULES, tenant=b"other")
    miss = told(tell(teller, RULES))
    assert (miss.cause, miss.elsewhere, miss.around) == ("first_seen", True, None)
    assert not told(tell(teller, "Something else. " * 20)).elsewhere


@pytest.mark.parametrize(
    ("was", "now", "cause"),
    [
        ("Today is 2026-11-21 10:15.", "Today is 2026-11-22 09:03.", "timestamp"),
        ("Session 9f8e7d6c5b4a3f2e.", "Session 1a2b3c4d5e6f7a8b.", "identifier"),
        ("You have 3 rooms.", "You have 8 rooms.", "number"),
        ("The guest likes tea.", "The guest likes coffee.", "text"),
    ],
)
def test_a_change_early_in_the_prompt_is_named(
    teller: MissTeller, was: str, now: str, cause: str
) -> None:
    tell(teller, f"{was} {RULES}")
    miss = told(tell(teller, f"{now} {RULES}"))
    assert miss.cause == cause
    assert miss.block == 0
    assert miss.token is not None and 0 < miss.token < SIZE
    assert miss.around is not None
    assert miss.around.before + miss.around.was in was
    assert miss.around.before + miss.around.now in now
    # All of the rules would have been found, but for blocks that they only share with the change.
    assert blocks(RULES) - 2 * SIZE <= miss.avoidable_tokens <= blocks(RULES)


def test_text_is_told_only_where_the_project_allows_it(teller: MissTeller) -> None:
    tell(teller, f"Today is 2026-11-21. {RULES}")
    miss = told(tell(teller, f"Today is 2026-11-22. {RULES}", content=False))
    assert (miss.cause, miss.around) == ("timestamp", None)


def test_text_of_a_project_that_keeps_none_is_not_told_by_its_sibling(teller: MissTeller) -> None:
    tell(teller, f"Today is 2026-11-21. {RULES}", content=False)
    miss = told(tell(teller, f"Today is 2026-11-22. {RULES}"))
    assert (miss.cause, miss.around) == ("timestamp", None)


def test_tools_in_another_order_are_told(teller: MissTeller) -> None:
    tell(teller, f"Tools: alpha beta. {RULES}", tools=("alpha", "beta"))
    miss = told(tell(teller, f"Tools: beta alpha. {RULES}", tools=("beta", "alpha")))
    assert miss.cause == "tools_reordered"


def test_a_conversation_that_goes_on_has_only_new_text(teller: MissTeller) -> None:
    tell(teller, RULES)
    longer = RULES + "Which hotel near the station has a pool and a quiet garden? " * 3
    miss = told(tell(teller, longer, delivered=blocks(RULES), available=blocks(RULES)))
    assert (miss.cause, miss.avoidable_tokens) == ("new_text", 0)
    assert miss.missed_tokens == blocks(longer) - blocks(RULES)
