"""vLLM's cache events become ours: hashes made anew, salts kept apart, doubt counted as absence."""

from __future__ import annotations

from typing import Any

import msgspec

from inference.contract.blocks import chain_hashes, split_hashes
from inference.engines.vllm_index import BlockIndex

SIZE = 4
SALT = b"alice"
TOKENS = list(range(12))
OURS = chain_hashes(TOKENS, SIZE, SALT)


def batch(*events: dict[str, Any]) -> bytes:
    """As vLLM writes it: a time, the events, the rank."""
    return msgspec.msgpack.encode([1.5, list(events), 0])


def stored(
    hashes: list[bytes], tokens: list[int], parent: bytes | None = None, salt: bytes = SALT
) -> dict[str, Any]:
    keys: list[list[str] | None] = [None] * len(hashes)
    if parent is None:
        keys[0] = [salt.hex()]
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": tokens,
        "block_size": SIZE,
        "lora_id": None,
        "medium": "GPU",
        "extra_keys": keys,
    }


def removed(*hashes: bytes) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU"}


def test_a_chain_stored_in_parts_has_our_hashes() -> None:
    index = BlockIndex(SIZE)
    first = index.apply(0, batch(stored([b"a", b"b"], TOKENS[:8])))
    second = index.apply(1, batch(stored([b"c"], TOKENS[8:], parent=b"b")))
    assert first is not None and second is not None
    assert split_hashes(first.stored + second.stored) == OURS
    assert (first.seq, second.seq) == (1, 2)
    snapshot = index.snapshot()
    assert (snapshot.seq, snapshot.snapshot) == (2, True)
    assert split_hashes(snapshot.stored) == OURS


def test_salts_keep_tenants_apart() -> None:
    index = BlockIndex(SIZE)
    events = index.apply(0, batch(stored([b"x"], TOKENS[:4], salt=b"bob")))
    assert events is not None
    assert split_hashes(events.stored) == chain_hashes(TOKENS[:4], SIZE, b"bob")
    assert events.stored != OURS[0]


def test_removed_blocks_leave_and_strangers_are_ignored() -> None:
    index = BlockIndex(SIZE)
    index.apply(0, batch(stored([b"a", b"b"], TOKENS[:8])))
    events = index.apply(1, batch(removed(b"b"), removed(b"z")))
    assert events is not None
    assert (events.stored, events.removed) == (b"", OURS[1])
    assert index.apply(2, batch(removed(b"b"))) is None
    assert index.snapshot().seq == 2


def test_only_what_a_batch_changes_in_the_end_is_told() -> None:
    index = BlockIndex(SIZE)
    index.apply(0, batch(stored([b"a"], TOKENS[:4])))
    again = stored([b"a"], TOKENS[:4])
    assert index.apply(1, batch(again)) is None
    assert index.apply(2, batch(removed(b"a"), again)) is None
    child = stored([b"b"], TOKENS[4:8], parent=b"a")
    assert index.apply(3, batch(child, removed(b"b"))) is None
    events = index.apply(4, batch(removed(b"a"), again, removed(b"a")))
    assert events is not None
    assert (events.stored, events.removed) == (b"", OURS[0])


def test_what_cannot_be_named_is_left_out() -> None:
    index = BlockIndex(SIZE)
    orphan = stored([b"c"], TOKENS[8:], parent=b"b")
    unsalted = {**stored([b"a"], TOKENS[:4]), "extra_keys": None}
    image = {**stored([b"a"], TOKENS[:4]), "extra_keys": [[SALT.hex(), "image"]]}
    partial = {**stored([b"a"], TOKENS[:2]), "block_size": 2}
    assert index.apply(0, batch(orphan, unsalted, image, partial)) is None


def test_a_gap_or_a_cleared_cache_forgets_everything() -> None:
    index = BlockIndex(SIZE)
    index.apply(0, batch(stored([b"a", b"b"], TOKENS[:8])))
    events = index.apply(5, batch(stored([b"d"], TOKENS[:4], salt=b"bob")))
    assert events is not None
    assert split_hashes(events.removed) == OURS[:2]
    assert split_hashes(events.stored) == chain_hashes(TOKENS[:4], SIZE, b"bob")
    cleared = index.apply(6, batch({"type": "AllBlocksCleared"}))
    assert cleared is not None
    assert cleared.removed == events.stored
    assert index.snapshot().stored == b""
