"""What simulated nodes have cached: one system prompt on all, chains on a few, the rest alone.

Both ends make the blocks from the same seeds: the nodes to announce them, the gateway to look for
them.
"""

from __future__ import annotations

from functools import cache
from random import Random

from inference.contract.blocks import HASH_BYTES, split_hashes

BLOCK_SIZE = 16
SHARED_BLOCKS = 64
CHAIN_BLOCKS = 2048
CHAINS = 32
COPIES_MAX = 8


@cache
def chain(number: int) -> list[bytes]:
    """A prompt of 32k tokens, the system prompt first."""
    shared = Random(0).randbytes(SHARED_BLOCKS * HASH_BYTES)
    rest = Random(1 + number).randbytes((CHAIN_BLOCKS - SHARED_BLOCKS) * HASH_BYTES)
    return split_hashes(shared + rest)


@cache
def holders(nodes: int) -> dict[int, list[tuple[int, int]]]:
    """By node the chains that it has, each as number and blocks."""
    random = Random(nodes)
    held: dict[int, list[tuple[int, int]]] = {}
    for number in range(CHAINS):
        for node in random.sample(range(nodes), random.randint(1, min(nodes, COPIES_MAX))):
            depth = random.randint(SHARED_BLOCKS, CHAIN_BLOCKS)
            held.setdefault(node, []).append((number, depth))
    return held


def announced(node: int, nodes: int) -> list[bytes]:
    """The blocks that one of so many nodes has of chains, the system prompt first."""
    found = dict.fromkeys(chain(0)[:SHARED_BLOCKS])
    for number, depth in holders(nodes).get(node, []):
        found.update(dict.fromkeys(chain(number)[:depth]))
    return list(found)


def blocks_of(node: int, nodes: int, count: int) -> bytes:
    """All `count` blocks of one of so many nodes, back to back."""
    known = announced(node, nodes)[:count]
    filler = Random(f"node {node}").randbytes((count - len(known)) * HASH_BYTES)
    return b"".join(known) + filler
