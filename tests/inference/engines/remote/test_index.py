"""vLLM's cache events become ours: hashes made anew, salts kept apart, doubt counted as absence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inference.contract.blocks import chain_hashes, split_hashes
from inference.engines.remote.index import (
    BlockIndex,
    BlockStored,
    BlockUnion,
    Event,
    Unfollowable,
    read_batch,
)

SIZE = 4
SALT = b"alice"
TOKENS = list(range(12))
OURS = chain_hashes(TOKENS, SIZE, SALT)


def encoded(*events: Any, as_map: bool = False) -> bytes:
    """As vLLM writes a batch: a time, the events, the rank."""
    fields = {"ts": 1.5, "events": list(events), "data_parallel_rank": 0}
    return msgspec.msgpack.encode(fields if as_map else list(fields.values()))


def batch(*events: Any) -> list[Event]:
    return read_batch(encoded(*events))


def frames(number: int, *events: Any) -> list[bytes]:
    """A message of vLLM's publisher."""
    return [b"", number.to_bytes(8, "big"), encoded(*events)]


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


def removed(*hashes: Any) -> dict[str, Any]:
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


def as_array(event: dict[str, Any]) -> list[Any]:
    """As versions write it that name no fields."""
    order = ("type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id")
    named = [event[name] for name in order if name in event] + [event["medium"]]
    return [*named, None, event["extra_keys"]] if "extra_keys" in event else named


@pytest.mark.parametrize("as_map", [False, True])
@pytest.mark.parametrize("write", [dict, as_array])
def test_both_forms_of_batches_and_of_events_are_read(as_map: bool, write: Any) -> None:
    index = BlockIndex(SIZE)
    events = (stored([b"a", b"b"], TOKENS[:8]), removed(b"b"))
    changed = index.apply(0, read_batch(encoded(*map(write, events), as_map=as_map)))
    assert changed is not None and changed.stored == OURS[0]
    cleared = read_batch(encoded(write({"type": "AllBlocksCleared", "medium": None})))
    changed = index.apply(1, cleared)
    assert changed is not None and changed.removed == OURS[0]


def test_blocks_of_other_media_are_not_those_of_the_device() -> None:
    index = BlockIndex(SIZE)
    index.apply(0, batch(stored([b"a"], TOKENS[:4])))
    offloaded = {**stored([b"b"], TOKENS[:4], salt=b"bob"), "medium": "CPU"}
    assert index.apply(1, batch(offloaded, {**removed(b"a"), "medium": "CPU"})) is None
    assert index.snapshot().stored == OURS[0]


# As recorded of a hybrid model: one hash of a state behind the tokens of five blocks.
HYBRID = stored([b"s"], list(range(5 * SIZE)))
ODD = {
    "fewer hashes than blocks": frames(1, HYBRID),
    "an event that is new": frames(1, {"type": "BlockMoved", "block_hashes": [b"a"]}),
    "an array that is new": frames(1, ["BlockMoved", [b"a"]]),
    "an event without its fields": frames(1, {"type": "BlockStored"}),
    "hashes of another kind": frames(1, removed("a")),
    "tokens that are none": frames(1, stored([b"x"], [-1, 2**40, 0, 0])),
    "no events": [b"", b"\x01", msgspec.msgpack.encode([1.5])],
    "no list of events": [b"", b"\x01", msgspec.msgpack.encode({"ts": 1.5, "events": 7})],
    "no batch": [b"", b"\x01", msgspec.msgpack.encode(7)],
    "no msgpack": [b"", b"\x01", b"\xc1"],
    "a frame too few": [encoded()],
}


@pytest.mark.parametrize("name", ODD)
def test_what_cannot_be_followed_costs_the_index_and_no_more(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    index = BlockIndex(SIZE)
    assert index.take(frames(0, stored([b"a"], TOKENS[:4]))) is not None
    told = index.take(ODD[name])
    assert told is not None and told == index.snapshot()
    assert (told.unknown, told.stored) == (True, b"")
    assert index.lost and len(caplog.records) == 1
    assert index.take(frames(2, stored([b"a"], TOKENS[:4]))) is None
    assert len(caplog.records) == 1 and index.snapshot().unknown
    assert (len(index), index.oldest_s()) == (0, 0.0)


@pytest.mark.parametrize("data", [b"", b"\x93", b"\xdd\xff\xff\xff\xff"])
def test_cut_batches_are_unfollowable(data: bytes) -> None:
    with pytest.raises(Unfollowable):
        read_batch(data)


def test_idle_blocks_are_those_that_can_be_found_and_are_not_in_use() -> None:
    index = BlockUnion()
    BlockIndex(SIZE, union=index).apply(0, batch(stored([b"a", b"b", b"c"], TOKENS)))
    assert index.idle(10, in_use=0, running=0) == 3
    # Two sequences hold a full block and one being filled, each.
    assert index.idle(6, in_use=4, running=2) == 1
    assert index.idle(1, in_use=0, running=0) == 1
    assert index.idle(0, in_use=10, running=1) == 0


def test_the_oldest_block_is_the_one_that_was_used_longest_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [0.0]
    monkeypatch.setattr("inference.engines.remote.index.time.monotonic", lambda: now_s[0])
    index = BlockIndex(SIZE)
    index.apply(0, batch(stored([b"a", b"b"], TOKENS[:8])))
    now_s[0] = 5.0
    index.touch(OURS[0] + b"x" * 16)
    assert index.oldest_s() == 5.0
    index.apply(1, batch(removed(b"b")))
    now_s[0] = 7.0
    assert index.oldest_s() == 2.0


@pytest.mark.parametrize("kind", ["sliding_window", "mamba"])
def test_layers_that_keep_no_prefix_are_not_followed(kind: str) -> None:
    """Of a hybrid model each group of layers tells its own blocks, under the same hashes."""
    index = BlockIndex(SIZE)
    whole = stored([b"a", b"b"], TOKENS[:8]) | {
        "group_idx": 0, "kv_cache_spec_kind": "full_attention",
    }  # fmt: skip
    beside = stored([b"b"], TOKENS[:8]) | {"group_idx": 1, "kv_cache_spec_kind": kind}
    assert index.take(frames(0, whole, beside)) is not None
    assert index.take(frames(1, removed(b"b") | {"group_idx": 1})) is None
    assert split_hashes(index.snapshot().stored) == OURS[:2]
    gone = index.take(frames(2, removed(b"b") | {"group_idx": 0}))
    assert gone is not None and split_hashes(gone.removed) == OURS[1:2]
    assert index.known and not index.lost


def test_what_an_adapter_computed_is_found_under_its_own_salt() -> None:
    index = BlockIndex(SIZE)
    event = msgspec.convert(stored([b"a"], TOKENS[:SIZE]), BlockStored)
    event = msgspec.structs.replace(
        event, lora_name="poet", extra_keys=[["poet", b"salt of poet".hex()]]
    )
    index.apply(0, [event])
    assert index.overlap(b"".join(chain_hashes(TOKENS[:SIZE], SIZE, b"salt of poet"))) == 1
    assert index.overlap(b"".join(OURS)) == 0
