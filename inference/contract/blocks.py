"""Identity of KV blocks: a salted SHA-256 chain over token ids, cut to 16 bytes.

A block's hash covers its tokens and, through the parent hash, everything before it, so equal
hashes mean equal prefixes. The salt separates tenants: without it a cache hit would tell one
tenant what another has asked (vLLM's `cache_salt` serves the same end; NDSS 2025, PROMPTPEEK).
"""

from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha256

from inference.contract.frames import KvEvents

HASH_BYTES = 16
TOKEN_BYTES = 4
SALTS_KEPT_MAX = 4096


@lru_cache(SALTS_KEPT_MAX)
def root_hash(salt: bytes) -> bytes:
    """Parent of the first block; 16 bytes."""
    return sha256(b"sluice-block-root" + salt).digest()[:HASH_BYTES]


def extend_chain(parent: bytes, tokens: Sequence[int], block_size: int) -> list[bytes]:
    """Hash each full block of `tokens` onto `parent`; a rest shorter than a block has no hash."""
    packed = array("I", tokens).tobytes()
    width = block_size * TOKEN_BYTES
    chain = []
    for start in range(0, len(packed) - width + 1, width):
        parent = sha256(parent + packed[start : start + width]).digest()[:HASH_BYTES]
        chain.append(parent)
    return chain


def chain_hashes(tokens: Sequence[int], block_size: int, salt: bytes) -> list[bytes]:
    """Hashes of the full blocks of a prompt, first to last."""
    if len(tokens) < block_size:
        return []
    return extend_chain(root_hash(salt), tokens, block_size)


def split_hashes(packed: bytes) -> list[bytes]:
    """Undo `b"".join(hashes)`; raises ValueError when the length is not a multiple of 16."""
    if len(packed) % HASH_BYTES:
        raise ValueError(f"hashes: {len(packed)} bytes is not a multiple of {HASH_BYTES}")
    return [packed[i : i + HASH_BYTES] for i in range(0, len(packed), HASH_BYTES)]


class BlockChanges:
    """Hashes of blocks that were cached and removed since the last events, net: one that came and
    went is neither. `seq` is the number of the last events.
    """

    def __init__(self) -> None:
        self.seq = 0
        self._stored: dict[bytes, None] = {}
        self._removed: dict[bytes, None] = {}

    def note(self, blocks: Iterable[bytes], *, stored: bool) -> None:
        into, undone = self._stored, self._removed
        if not stored:
            into, undone = undone, into
        for block in blocks:
            if block in undone:
                del undone[block]
            else:
                into[block] = None

    def events(self) -> KvEvents | None:
        """What changed; None where nothing did."""
        stored, removed = b"".join(self._stored), b"".join(self._removed)
        if not stored and not removed:
            return None
        self._stored.clear()
        self._removed.clear()
        self.seq += 1
        return KvEvents(seq=self.seq, stored=stored, removed=removed)
