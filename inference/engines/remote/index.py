"""Follows a server's prefix cache: its events in, ours out, with hashes made anew from token ids.

vLLM and SGLang hash blocks in their own ways, so each of their hashes is mapped to ours when the
block is stored. Whatever cannot be mapped is left out: a block that the gateway does not know costs
a missed hit, one that it wrongly assumes would cost a wrong route. Events are read in each of the
forms that their versions write.
"""

import logging
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from inference.contract.blocks import HASH_BYTES, BlockChanges, extend_chain, root_hash
from inference.contract.frames import Job, KvEvents

log = logging.getLogger(__name__)

TheirHash = bytes | int
# Where a version has it: blocks of other media are not in the cache that prompts are matched with.
DEVICE_MEDIA = (None, "GPU")
# Layers of whose blocks a prefix is made; others keep a window or a state beside it.
WHOLE_KINDS = (None, "full_attention", "mla_attention")
FRAMES_MIN = 2
SALTS_MAX = 256


class Unfollowable(ValueError):
    """Events that cannot be read, or that say what an index of ours cannot hold."""


class BlockStored(msgspec.Struct, tag="BlockStored"):
    """Full blocks that are cached from now on, in one chain behind `parent_block_hash`.

    `extra_keys` has one entry per block; that of a prompt's first block holds the cache salt. The
    order of fields is that of versions which write arrays.
    """

    block_hashes: list[TheirHash]
    parent_block_hash: TheirHash | None
    token_ids: list[int]
    block_size: int
    lora_id: Any = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[object] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class BlockRemoved(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: list[TheirHash]
    medium: str | None = None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, tag="AllBlocksCleared"):
    """The cache is empty."""


Event = BlockStored | BlockRemoved | AllBlocksCleared
_KINDS = {kind.__name__: kind for kind in (BlockStored, BlockRemoved, AllBlocksCleared)}


class BlockUnion:
    """What one or several caches hold, and its changes: a block is there as long as one has it."""

    def __init__(self) -> None:
        self.parts: list[BlockIndex] = []
        self._holders: dict[bytes, int] = {}
        self._changes = BlockChanges()

    def note(self, blocks: Iterable[bytes], *, stored: bool) -> None:
        """One of the caches has stored or removed these."""
        for block in blocks:
            before = self._holders.get(block, 0)
            after = before + (1 if stored else -1)
            if after:
                self._holders[block] = after
            else:
                del self._holders[block]
            if not before or not after:
                self._changes.note((block,), stored=stored)

    def events(self) -> KvEvents | None:
        """What changed; None where nothing did."""
        return self._changes.events()

    def idle(self, free: int, *, in_use: int, running: int) -> int:
        """How many of the server's `free` blocks are cached.

        Of those in use all can, but for the last of each running sequence.
        """
        held = sum(map(len, self.parts))
        return min(free, max(0, held - max(0, in_use - running)))

    def snapshot(self) -> KvEvents:
        """All blocks, with the number of the last events; unknown where one of the caches is."""
        unknown = not all(part.known for part in self.parts)
        blocks = b"".join(self._holders)
        seq = self._changes.seq
        return KvEvents(seq=seq, stored=blocks, removed=b"", snapshot=True, unknown=unknown)


class BlockIndex:
    """The cached blocks of a server, or of one of its ranks, under our hashes.

    `lost` is set for good once it cannot be followed; `known` while it is. `next_number` is that of
    the message that follows. `salted`: events tell the salts of prompts; else they are found among
    those of what was sent. `union` is that of all ranks.
    """

    def __init__(
        self, block_size: int, *, salted: bool = True, union: BlockUnion | None = None
    ) -> None:
        self.block_size = block_size
        self._salted = salted
        # Of the newest prompts, by our hash of their first block.
        self._salts: dict[bytes, bytes] = {}
        self.lost = self.known = False
        self.next_number = 0
        self._ours: dict[TheirHash, bytes] = {}
        # When each was last used, as far as is known; the oldest first.
        self._used_s: dict[bytes, float] = {}
        self._union = union or BlockUnion()
        self._union.parts.append(self)
        # Groups of layers that are not followed.
        self._aside: set[int] = set()

    @property
    def fresh(self) -> bool:
        """Whether nothing was ever read."""
        return not self.next_number and not self.lost

    def __len__(self) -> int:
        return len(self._ours)

    def overlap(self, blocks: bytes) -> int:
        """How many of a prompt's blocks, as a job carries them, are cached from its beginning."""
        for start in range(0, len(blocks), HASH_BYTES):
            if blocks[start : start + HASH_BYTES] not in self._used_s:
                return start // HASH_BYTES
        return len(blocks) // HASH_BYTES

    def take(self, frames: list[bytes]) -> KvEvents | None:
        """Follow one message; what cannot be followed costs the index, and no more."""
        if self.lost:
            return None
        try:
            changed = self.apply(number_of(frames), read_batch(frames[-1]))
        except (Unfollowable, OverflowError) as error:
            return self.lose(error)
        self.known = True
        return changed

    def lose(self, error: Exception) -> KvEvents:
        """It cannot be followed from now on; what gateways have to be told."""
        log.error("the server's cache is served without an index from now on: %s", error)
        self.lost, self.known = True, False
        self._union.note(self._clear(), stored=False)
        self._union.events()
        return self.snapshot()

    def restarted(self) -> None:
        """The server begins anew, with an empty cache; a snapshot has to tell."""
        self._union.note(self._clear(), stored=False)
        self._union.events()
        self.next_number = 0

    def send(self, job: Job) -> None:
        """The server is sent this prompt."""
        self.touch(job.hashes)
        if first := job.hashes[:HASH_BYTES]:
            self._salts.pop(first, None)
            self._salts[first] = job.salt
            if len(self._salts) > SALTS_MAX:
                del self._salts[next(iter(self._salts))]

    def touch(self, blocks: bytes) -> None:
        """A request uses these, as a job carries them, or has just ended."""
        now_s = time.monotonic()
        for start in range(0, len(blocks), HASH_BYTES):
            block = blocks[start : start + HASH_BYTES]
            if self._used_s.pop(block, None) is not None:
                self._used_s[block] = now_s

    def oldest_s(self) -> float:
        """The age of the block that was used longest ago; 0 without any."""
        oldest_at_s = next(iter(self._used_s.values()), None)
        return 0.0 if oldest_at_s is None else time.monotonic() - oldest_at_s

    def apply(self, number: int, events: Iterable[Event]) -> KvEvents | None:
        """Take the batch `number` in; None where it changes nothing that we can name.

        Numbers grow by one. After a gap nothing known is certain, so everything is forgotten.
        Raises `Unfollowable`.
        """
        if number != self.next_number:
            self._union.note(self._clear(), stored=False)
        self.next_number = number + 1
        for event in events:
            if isinstance(event, BlockStored):
                self._union.note(self._store(event), stored=True)
            elif isinstance(event, BlockRemoved):
                self._union.note(self._remove(event), stored=False)
            else:
                self._union.note(self._clear(), stored=False)
        return self._union.events()

    def snapshot(self) -> KvEvents:
        """All blocks of the union."""
        return self._union.snapshot()

    def _store(self, event: BlockStored) -> list[bytes]:
        """Our hashes of the blocks that are new."""
        if event.kv_cache_spec_kind not in WHOLE_KINDS and event.group_idx is not None:
            self._aside.add(event.group_idx)
            return []
        parent = self._parent(event)
        if parent is None or event.block_size != self.block_size:
            return []
        if event.medium not in DEVICE_MEDIA:
            return []
        chain = extend_chain(parent, event.token_ids, event.block_size)
        if len(chain) != len(event.block_hashes):
            # As of models that keep a state instead of keys and values in some of their layers.
            raise Unfollowable(f"{len(event.block_hashes)} hashes of {len(chain)} blocks")
        new = {
            theirs: ours
            for theirs, ours in zip(event.block_hashes, chain, strict=True)
            if theirs not in self._ours
        }
        self._ours |= new
        self._used_s |= dict.fromkeys(new.values(), time.monotonic())
        return list(new.values())

    def _parent(self, event: BlockStored) -> bytes | None:
        """Our hash of the parent block; None where that is not known."""
        if event.parent_block_hash is not None:
            return self._ours.get(event.parent_block_hash)
        if not self._salted:
            return self._root_sent(event.token_ids[: self.block_size])
        keys = (event.extra_keys or [None])[0]
        if keys and event.lora_name is not None and keys[0] == event.lora_name:
            # Gateways salt what an adapter computes by its name.
            keys = keys[1:]
        if not keys or len(keys) != 1 or not isinstance(keys[0], str):
            return None
        try:
            return root_hash(bytes.fromhex(keys[0]))
        except ValueError:
            return None

    def _root_sent(self, tokens: list[int]) -> bytes | None:
        """The parent of a first block that was sent lately."""
        for root in map(root_hash, set(self._salts.values())):
            if not self._salts.keys().isdisjoint(extend_chain(root, tokens, self.block_size)):
                return root
        return None

    def _remove(self, event: BlockRemoved) -> list[bytes]:
        if event.medium not in DEVICE_MEDIA or event.group_idx in self._aside:
            return []
        known = [theirs for theirs in event.block_hashes if theirs in self._ours]
        gone = [self._ours.pop(theirs) for theirs in known]
        for block in gone:
            self._used_s.pop(block, None)
        return gone

    def _clear(self) -> list[bytes]:
        gone = list(self._ours.values())
        self._ours.clear()
        self._used_s.clear()
        return gone


def number_of(frames: list[bytes]) -> int:
    """The number of a message, which ends with it and a batch; raises `Unfollowable`."""
    if len(frames) < FRAMES_MIN:
        raise Unfollowable(f"a message of {len(frames)} frames")
    return int.from_bytes(frames[-2], "big")


def read_batch(data: bytes) -> list[Event]:
    """The events of one engine step; raises `Unfollowable`.

    Batch and events are maps, or arrays: of the batch its time, its events and more; of an event
    its kind and then its fields.
    """
    try:
        batch = msgspec.msgpack.decode(data)
        events = batch["events"] if isinstance(batch, dict) else batch[1]
        return [_read(event) for event in events]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unfollowable(f"events that cannot be read: {error}") from error
    except (LookupError, TypeError) as error:
        raise Unfollowable("a batch in a form that is not known") from error


def _read(event: Any) -> Event:
    if isinstance(event, list):
        kind = _KINDS[event[0]]
        event = {"type": event[0], **dict(zip(kind.__struct_fields__, event[1:], strict=False))}
    read: Event = msgspec.convert(event, Event)
    return read
