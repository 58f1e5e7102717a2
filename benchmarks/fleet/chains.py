"""Prompts as chains of segments: runs of KV blocks that are shared, evicted and matched together.

A segment stands for a system prompt, a document or a whole conversation; hashing each 16 tokens
would cost more than everything else here. Blocks hold 64 tokens, so a node has 6,250 of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BLOCK_TOKENS = 64
HASH_BYTES = 16
# Room of a segment in the space of hashes, so that no two segments share one.
SEGMENT_BLOCKS_MAX = 1 << 20


class Segment:
    """`blocks` blocks that follow the end of the segment before them; identity is equality."""

    __slots__ = ("_hashes", "blocks", "number")

    def __init__(self, number: int, blocks: int) -> None:
        self.number = number
        self.blocks = blocks
        self._hashes: list[bytes] = []

    def hashes(self, start: int, stop: int) -> list[bytes]:
        """The hashes of blocks `start` up to `stop`, 16 bytes each."""
        if not self._hashes:
            base = self.number * SEGMENT_BLOCKS_MAX
            places = range(base, base + self.blocks)
            self._hashes = [place.to_bytes(HASH_BYTES, "big") for place in places]
        return self._hashes[start:stop]


class Segments:
    """Makes segments, each with hashes of its own."""

    def __init__(self) -> None:
        self._made = 0
        self._families: dict[str, list[Segment]] = {}

    def make(self, blocks: int) -> Segment:
        """A new segment that no prompt has had."""
        self._made += 1
        return Segment(self._made, blocks)

    def family(self, name: str, sizes: list[int]) -> list[Segment]:
        """The segments of this name: made with these sizes when first asked for."""
        if name not in self._families:
            self._families[name] = [self.make(blocks) for blocks in sizes]
        return self._families[name]


@dataclass(slots=True, eq=False)
class Request:
    """One prompt: `path` are its segments, of which all but the last are used in full.

    `at` is when it arrives, in seconds. `session` is what a session header would say. `follow` is
    the next turn of the same conversation; it never comes before this one has ended. The rest is
    what became of it: the gateway that took it, uncached tokens when it came to its node and
    cached ones when it started there, and when its first and last token came (-1: not yet).
    """

    at: float
    session: int
    path: tuple[Segment, ...]
    prompt_tokens: int
    output_tokens: int
    follow: Request | None = None
    gateway: int = 0
    expected_tokens: int = 0
    cached_tokens: int = -1
    first_at: float = -1.0
    ended_at: float = -1.0
    prompt_blocks: int = field(init=False)
    last_blocks: int = field(init=False)
    end_blocks: int = field(init=False)

    def __post_init__(self) -> None:
        before = sum(segment.blocks for segment in self.path[:-1])
        self.prompt_blocks = self.prompt_tokens // BLOCK_TOKENS
        self.last_blocks = self.prompt_blocks - before
        self.end_blocks = (self.prompt_tokens + self.output_tokens) // BLOCK_TOKENS - before

    def chain(self) -> list[bytes]:
        """Hashes of the full blocks of the prompt, first to last."""
        found: list[bytes] = []
        for segment in self.path[:-1]:
            found += segment.hashes(0, segment.blocks)
        return found + self.path[-1].hashes(0, self.last_blocks)

    def matched_blocks(self, held: dict[Segment, int]) -> int:
        """Leading blocks of the prompt among `held`, the blocks of each segment somewhere."""
        found = 0
        for segment in self.path[:-1]:
            here = held.get(segment, 0)
            found += here
            if here < segment.blocks:
                return found
        return found + min(held.get(self.path[-1], 0), self.last_blocks)

    def cached_at(self, blocks: int) -> int:
        """Tokens that so many blocks spare; the last one of a prompt is always computed."""
        return min(blocks * BLOCK_TOKENS, self.prompt_tokens - 1)
