"""Follows vLLM's prefix cache: its events in, ours out, with hashes made anew from token ids.

vLLM hashes blocks in a way of its own, so each of its hashes is mapped to ours when the block is
stored. Whatever cannot be mapped is left out: a block that the gateway does not know of costs a
missed hit, one that it believes in by mistake would cost a wrong route. Imports no vLLM.
"""

from __future__ import annotations

import msgspec

from inference.contract.blocks import extend_chain, root_hash
from inference.contract.frames import KvEvents

VllmHash = bytes | int


class BlockStored(msgspec.Struct, tag="BlockStored"):
    """Full blocks that can be found from now on, in one chain behind `parent_block_hash`.

    `extra_keys` has one entry per block; that of a prompt's first block holds the cache salt.
    """

    block_hashes: list[VllmHash]
    parent_block_hash: VllmHash | None
    token_ids: list[int]
    block_size: int
    extra_keys: list[list[object] | None] | None = None


class BlockRemoved(msgspec.Struct, tag="BlockRemoved"):
    """Blocks that cannot be found any more."""

    block_hashes: list[VllmHash]


class AllBlocksCleared(msgspec.Struct, tag="AllBlocksCleared"):
    """The cache is empty."""


class EventBatch(msgspec.Struct, array_like=True):
    """What one engine step changed; `stamp_s` is vLLM's clock."""

    stamp_s: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]


_decoder = msgspec.msgpack.Decoder(EventBatch)


class BlockIndex:
    """The blocks that can be found in vLLM, under our hashes."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._ours: dict[VllmHash, bytes] = {}
        self._sequence = 0
        self._next_batch = 0

    def apply(self, number: int, batch: bytes) -> KvEvents | None:
        """Take vLLM's batch `number` in; None where it changes nothing that we can name.

        Numbers grow by one. After a gap nothing known is certain, so everything is forgotten.
        """
        changes = _Changes()
        if number != self._next_batch:
            changes.note(self._clear(), stored=False)
        self._next_batch = number + 1
        for event in _decoder.decode(batch).events:
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
        return KvEvents(seq=self._sequence, stored=blocks, removed=b"", snapshot=True)

    def _store(self, event: BlockStored) -> list[bytes]:
        """Our hashes of the blocks that are new."""
        parent = self._parent(event)
        if parent is None or event.block_size != self.block_size:
            return []
        chain = extend_chain(parent, event.token_ids, event.block_size)
        new = {
            theirs: ours
            for theirs, ours in zip(event.block_hashes, chain, strict=True)
            if theirs not in self._ours
        }
        self._ours |= new
        return list(new.values())

    def _parent(self, event: BlockStored) -> bytes | None:
        """Our hash of what the blocks hang on; None where that is not known."""
        if event.parent_block_hash is not None:
            return self._ours.get(event.parent_block_hash)
        keys = (event.extra_keys or [None])[0]
        if not keys or len(keys) != 1 or not isinstance(keys[0], str):
            return None
        return root_hash(bytes.fromhex(keys[0]))

    def _remove(self, event: BlockRemoved) -> list[bytes]:
        known = [theirs for theirs in event.block_hashes if theirs in self._ours]
        return [self._ours.pop(theirs) for theirs in known]

    def _clear(self) -> list[bytes]:
        gone = list(self._ours.values())
        self._ours.clear()
        return gone


class _Changes:
    """What became of each block within one batch: whether it was stored first, and last."""

    def __init__(self) -> None:
        self._blocks: dict[bytes, tuple[bool, bool]] = {}

    def note(self, blocks: list[bytes], *, stored: bool) -> None:
        """These blocks came or went."""
        for block in blocks:
            first, _ = self._blocks.get(block, (stored, stored))
            self._blocks[block] = (first, stored)

    def net(self) -> tuple[bytes, bytes]:
        """Blocks that are new and blocks that are gone; who came and went is neither."""
        stored = [block for block, ends in self._blocks.items() if ends == (True, True)]
        removed = [block for block, ends in self._blocks.items() if ends == (False, False)]
        return b"".join(stored), b"".join(removed)
