"""What a node is sought for, and what is believed of the caches."""

import msgspec

from controlplane.gateway.nodes.measured.account import NodeAccount
from controlplane.gateway.nodes.measured.loads import Places
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.receipt import IndexState

# How much of a prompt siblings must have in common to meet where no index tells.
HEAD_TOKENS = 128


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is sought for: a prompt of `tokens`, with its block hashes by block size.

    `key` is what the client says that siblings share, within its tenant; empty without one.
    """

    model: str
    rule: str
    tokens: int
    chains: dict[int, list[bytes]]
    key: bytes = b""

    @property
    def has_blocks(self) -> bool:
        """Whether it is as long as one block; else nothing of it is found anywhere."""
        return any(self.chains.values())

    @property
    def cacheable(self) -> int:
        """All tokens but the last, which is always computed for its logits."""
        return max(0, self.tokens - 1)

    @property
    def head(self) -> bytes:
        """What siblings have in common; empty where nothing can be cached at all."""
        for size, chain in self.chains.items():
            if chain:
                return chain[min(len(chain), max(1, HEAD_TOKENS // size)) - 1]
        return b""


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Reusable tokens of each node, as the choice believes them; an array where they are many.

    `most` is the most of these, `available` that of any node of the fleet, whether it takes jobs
    now or not.
    """

    cached: list[int] | Places
    most: int
    available: int
    index: IndexState


def predicted_tokens(sought: Sought, account: NodeAccount) -> int:
    """What a node should have soon, since it was sent a prompt with the same beginning."""
    size = account.block_size
    if not (chain := sought.chains.get(size)):
        return 0
    return min(account.sent.leading(chain, monotonic_s()) * size, sought.cacheable)
