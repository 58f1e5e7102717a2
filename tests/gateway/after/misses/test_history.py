"""What is remembered of prompts, and that it stays within its bounds."""

from __future__ import annotations

import pytest

from controlplane.gateway.after.misses import history
from controlplane.gateway.after.misses.explain import pack
from controlplane.gateway.after.misses.history import History, Seen, shared_blocks
from inference.contract.blocks import chain_hashes

SIZE = 4


def seen(tokens: list[int], tenant: bytes = b"a") -> Seen:
    return Seen(pack(tokens), {SIZE: chain_hashes(tokens, SIZE, tenant)}, (), content=True)


def add(known: History, tokens: list[int], tenant: bytes = b"a") -> Seen:
    made = seen(tokens, tenant)
    known.add(tenant, made, pack(tokens[:SIZE]))
    return made


def test_the_deepest_shared_prompt_is_found() -> None:
    known = History()
    base = list(range(20))
    near = add(known, [*base[:12], 99, 98, 97, 96])
    add(known, [*base[:4], 9, 9, 9, 9])
    assert known.nearest(b"a", SIZE, chain_hashes(base, SIZE, b"a")) == (near, 3)


def test_of_equals_the_newest_is_taken() -> None:
    known = History()
    add(known, [1, 2, 3, 4, 5])
    newest = add(known, [1, 2, 3, 4, 6])
    assert known.nearest(b"a", SIZE, chain_hashes([1, 2, 3, 4], SIZE, b"a")) == (newest, 1)


def test_tenants_never_see_each_others_prompts_but_only_that_a_head_is_known() -> None:
    known = History()
    add(known, [1, 2, 3, 4, 5], b"a")
    head = pack([1, 2, 3, 4])
    assert known.nearest(b"b", SIZE, chain_hashes([1, 2, 3, 4], SIZE, b"b")) == (None, 0)
    assert known.another_tenants(b"b", head)
    assert not known.another_tenants(b"a", head)
    assert not known.another_tenants(b"b", pack([9, 9, 9, 9]))


def test_a_tenant_keeps_its_last_prompts() -> None:
    known = History()
    for first in range(history.PROMPTS_PER_TENANT + 1):
        add(known, [first, 1, 2, 3])
    oldest, newest = (chain_hashes([n, 1, 2, 3], SIZE, b"a") for n in (0, 1))
    assert known.nearest(b"a", SIZE, oldest)[1] == 0
    assert known.nearest(b"a", SIZE, newest)[1] == 1


def test_bytes_are_bounded_and_the_oldest_tenant_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "BYTES_MAX", 10 * 4 * 3)
    known = History()
    for tenant in (b"a", b"b", b"c"):
        add(known, list(range(10)), tenant)
    add(known, list(range(10)), b"a")
    chain = list(range(10))
    found = {t: known.nearest(t, SIZE, chain_hashes(chain, SIZE, t))[1] for t in (b"a", b"b", b"c")}
    assert found == {b"a": 2, b"b": 0, b"c": 2}


def test_shared_blocks_of_chains() -> None:
    chain = chain_hashes(list(range(40)), SIZE, b"")
    for length in range(11):
        other = chain[:length] + chain_hashes(list(range(50, 90)), SIZE, b"x")
        assert shared_blocks(chain, other) == length
