"""Where two prompts part and meet again, against a plain reading token by token."""

from __future__ import annotations

import itertools
import random
import uuid

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from controlplane.gateway.after.misses.explain import (
    AGREE_TOKENS,
    GAP_TOKENS_MAX,
    kind_of,
    pack,
    part,
)
from controlplane.kernel.receipt import PromptChange
from tests.support.shipped import SHIPPED

TOKENS = st.lists(st.integers(0, 3), max_size=80)


@given(TOKENS, TOKENS)
def test_shared_tokens_are_the_common_prefix(was: list[int], now: list[int]) -> None:
    shared = 0
    while shared < min(len(was), len(now)) and was[shared] == now[shared]:
        shared += 1
    assert part(pack(was), pack(now)).shared == shared


@given(TOKENS, TOKENS)
def test_what_is_said_to_agree_again_does(was: list[int], now: list[int]) -> None:
    found = part(pack(was), pack(now))
    if not found.again:
        assert (found.was, found.now) == (len(was) - found.shared, len(now) - found.shared)
        return
    at_was, at_now = found.shared + found.was, found.shared + found.now
    assert was[at_was : at_was + found.again] == now[at_now : at_now + found.again]
    beyond = was[at_was + found.again :][:1], now[at_now + found.again :][:1]
    assert beyond[0] != beyond[1] or beyond == ([], [])


def test_the_shortest_difference_is_told() -> None:
    head, tail = list(range(100, 140)), list(range(200, 260))
    found = part(pack([*head, 1, 2, *tail]), pack([*head, 3, *tail]))
    assert (found.shared, found.was, found.now, found.again) == (40, 2, 1, 60)


def test_a_gap_beyond_the_bound_is_new_text() -> None:
    tail = list(range(200, 200 + AGREE_TOKENS))
    was = [1, *([2] * (GAP_TOKENS_MAX + 1)), *tail]
    assert part(pack(was), pack([1, *tail])).again == 0
    assert part(pack(was[1:]), pack([3, *tail])).again == 0
    assert part(pack([1, *was[2:]]), pack([1, *tail])).again == AGREE_TOKENS


def test_kinds_of_changes_are_told_by_what_they_are_a_part_of() -> None:
    def kind(before: str, was: str, now: str, after: str = " please") -> str:
        return kind_of(PromptChange(before=before, was=was, now=now, after=after))

    assert kind("Today is 2026-11-", "21", "22") == "timestamp"
    assert kind("Now: 10:15:0", "3", "4") == "timestamp"
    assert kind("at 17323", "00001", "00002") == "timestamp"
    assert kind("session 7f3a9b2c-", "11aa", "22bb", "-4000") == "identifier"
    assert kind("request req_8fh3kq", "9x2m", "1z7p") == "identifier"
    assert kind("You have ", "3", "12", " messages") == "number"
    assert kind("You like ", "tea", "coffee") == "text"
    # The date stands elsewhere: it is not what changed.
    assert kind("2026-11-22. You like ", "tea", "coffee") == "text"


def test_a_new_id_in_front_of_all_is_found_in_a_small_vocabulary_too() -> None:
    tokenizer = Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))
    dice = random.Random(7)
    rules = "Answer questions on hotels. Be short, be kind and never invent a price. " * 4
    prompts = [
        pack(tokenizer.encode(f"Request {uuid.UUID(int=dice.getrandbits(128))}. {rules}").ids)
        for _ in range(20)
    ]
    after = len(tokenizer.encode(rules).ids) - 1
    for was, now in itertools.pairwise(prompts):
        assert part(was, now).again >= after
