"""Follows vLLM's prefix cache: its events in, ours out, with hashes computed again from token ids.

vLLM hashes blocks in its own way, so each of its hashes is mapped to ours when the block is
stored. Whatever cannot be mapped is left out: a block that the gateway does not know costs a missed
hit, one that it wrongly assumes would cost a wrong route. Imports no vLLM.
"""

import logging
import time
from collections.abc import Iterable

from inference.contract.blocks import HASH_BYTES, extend_chain, root_hash
from inference.contract.frames import KvEvents
from inference.engines.vllm.events import (
    DEVICE_MEDIA,
    BlockRemoved,
    BlockStored,
    Event,
    Unfollowable,
    VllmHash,
    read_frames,
)

log = logging.getLogger(__name__)


class BlockIndex:
    """The cached blocks of vLLM, under our hashes.

    `lost` is set for good once it cannot be followed: then nothing is known of the cache.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.lost = False
        self._ours: dict[VllmHash, bytes] = {}
        # When each was last used, as far as is known; the oldest first.
        self._used_s: dict[bytes, float] = {}
        self._sequence = 0
        self._next_batch = 0

    def idle(self, free: int, *, in_use: int, running: int) -> int:
        """How many of vLLM's `free` blocks are cached.

        Of those in use all can, but for the last of each running sequence.
        """
        return min(free, max(0, len(self._ours) - max(0, in_use - running)))

    def take(self, frames: list[bytes]) -> KvEvents | None:
        """Follow one message of vLLM; what cannot be followed costs the index, and no more."""
        if self.lost:
            return None
        try:
            return self.apply(*read_frames(frames))
        except (Unfollowable, OverflowError) as error:
            log.error("vLLM's cache is served without an index from now on: %s", error)
            self.lost = True
            self._clear()
            return self.snapshot()

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
        """Take vLLM's batch `number` in; None where it changes nothing that we can name.

        Numbers grow by one. After a gap nothing known is certain, so everything is forgotten.
        Raises `Unfollowable`.
        """
        changes = _Changes()
        if number != self._next_batch:
            changes.note(self._clear(), stored=False)
        self._next_batch = number + 1
        for event in events:
            if isinstance(event, BlockStored):
                changes.note(self._store(event), stored=True)
            elif isinstance(event, BlockRemoved):
                changes.note(self._remove(event), stored=False)
            else:
                changes.note(self._clear(), stored=False)
        stored, removed = changes.net()
        if not stored and not removed:
            return None
        self._sequence += 1
        return KvEvents(seq=self._sequence, stored=stored, removed=removed)

    def snapshot(self) -> KvEvents:
        """All blocks, with the number of the last events that `apply` made."""
        blocks = b"".join(self._ours.values())
        return KvEvents(
            seq=self._sequence, stored=blocks, removed=b"", snapshot=True, unknown=self.lost
        )

    def _store(self, event: BlockStored) -> list[bytes]:
        """Our hashes of the blocks that are new."""
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
        keys = (event.extra_keys or [None])[0]
        if not keys or len(keys) != 1 or not isinstance(keys[0], str):
            return None
        try:
            return root_hash(bytes.fromhex(keys[0]))
        except ValueError:
            return None

    def _remove(self, event: BlockRemoved) -> list[bytes]:
        if event.medium not in DEVICE_MEDIA:
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


class _Changes:
    """What became of each block within one batch: whether it was stored first, and last."""

    def __init__(self) -> None:
        self._blocks: dict[bytes, tuple[bool, bool]] = {}

    def note(self, blocks: list[bytes], *, stored: bool) -> None:
        for block in blocks:
            first, _ = self._blocks.get(block, (stored, stored))
            self._blocks[block] = (first, stored)

    def net(self) -> tuple[bytes, bytes]:
        """Blocks that are new and blocks that are gone; one that came and went is neither."""
        stored = [block for block, ends in self._blocks.items() if ends == (True, True)]
        removed = [block for block, ends in self._blocks.items() if ends == (False, False)]
        return b"".join(stored), b"".join(removed)
