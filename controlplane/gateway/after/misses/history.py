"""The last prompts of each tenant and tokenizer at this gateway; bounded, and never on disk."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from controlplane.gateway.nodes.measured.gallop import last_true

TENANTS_MAX = 512
PROMPTS_PER_TENANT = 16
BYTES_MAX = 32 * 1024 * 1024
HEADS_MAX = 4096
HEAD_BYTES = 8


class Seen(msgspec.Struct, frozen=True, eq=False):
    """One earlier prompt: packed token ids, block hashes by block size, names of its tools.

    `content`: its own project lets its text be kept, whichever project compares with it.
    """

    tokens: bytes
    chains: dict[int, list[bytes]]
    tools: tuple[str, ...]
    content: bool


class History:
    """What to compare a prompt with. The least recently used tenant is forgotten first."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[bytes, deque[Seen]] = OrderedDict()
        self._heads: OrderedDict[bytes, bytes] = OrderedDict()
        self._bytes = 0

    def add(self, tenant: bytes, seen: Seen, head: bytes) -> None:
        """Remember a prompt; `head` is its first block, without any salt."""
        prompts = self._tenants.setdefault(tenant, deque())
        self._tenants.move_to_end(tenant)
        prompts.appendleft(seen)
        self._bytes += len(seen.tokens)
        if len(prompts) > PROMPTS_PER_TENANT:
            self._bytes -= len(prompts.pop().tokens)
        digest = _digest(head)
        self._heads[digest] = tenant
        self._heads.move_to_end(digest)
        if len(self._heads) > HEADS_MAX:
            self._heads.popitem(last=False)
        while self._bytes > BYTES_MAX or len(self._tenants) > TENANTS_MAX:
            _, forgotten = self._tenants.popitem(last=False)
            self._bytes -= sum(len(each.tokens) for each in forgotten)

    def nearest(self, tenant: bytes, size: int, chain: Sequence[bytes]) -> tuple[Seen | None, int]:
        """The tenant's prompt that shares most leading blocks, and how many; newest of equals.

        Without a shared block it is the newest prompt.
        """
        best: Seen | None = None
        most = -1
        for seen in self._tenants.get(tenant, ()):
            other = seen.chains.get(size)
            if other is None:
                continue
            shared = shared_blocks(other, chain)
            if shared > most:
                best, most = seen, shared
        return best, max(most, 0)

    def another_tenants(self, tenant: bytes, head: bytes) -> bool:
        """Whether the last prompt with this first block was another tenant's."""
        return self._heads.get(_digest(head), tenant) != tenant


def shared_blocks(first: Sequence[bytes], second: Sequence[bytes]) -> int:
    """Leading blocks that two chains share: a hash covers all before it, so one is enough."""
    most = min(len(first), len(second))
    if not most or first[0] != second[0]:
        return 0
    return last_true(most, lambda _, high: first[high - 1] == second[high - 1])


def _digest(head: bytes) -> bytes:
    return blake2b(head, digest_size=HEAD_BYTES).digest()
