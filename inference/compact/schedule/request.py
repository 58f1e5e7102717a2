"""State of one request and of its choices, as the scheduler sees it. No torch, no clock."""

from __future__ import annotations

from array import array
from hashlib import blake2b
from sys import byteorder
from typing import Any, Protocol

from inference.contract.blocks import HASH_BYTES, chain_hashes, extend_chain, split_hashes
from inference.contract.capabilities import BACKGROUND
from inference.contract.frames import Job
from inference.contract.parts import TokenLogprob

TOKEN_BYTES = array("I").itemsize
# The share of drafts that is assumed to be accepted at first; see `speculate`.
ACCEPTANCE_AT_FIRST = 0.25
WORD_BITS = 32


class TokenMask(Protocol):
    """What limits the next token of one choice from outside, such as a grammar.

    The sampler fills one row of bits per sampled row, before anything else changes the logits. It
    moves on with each token that is appended; drafts are tried and taken back.
    """

    def fill(self, bits: memoryview) -> None:
        """Overwrite a row of `ceil(vocabulary / 32)` words of 32 bits, the lowest first: bit `t`
        is set where token `t` may come next. A row without a set bit ends the choice with `error`.
        """

    @staticmethod
    def fill_all(masks: list[tuple[Any, int]], bits: Any) -> None:
        """`fill` for masks of this class, each in its own row of an array `[rows, bytes]`."""

    def accept(self, token: int) -> bool:
        """Move on by a token; False, and nothing changed, where it may not come next."""

    def rollback(self, count: int) -> None:
        """Take back the last `count` accepted tokens."""


class Request:
    """One job with everything that its choices share. Times are microseconds of one clock.

    `prefilled_tokens` of the prompt have been computed once or were found, whatever preemption has
    thrown away since. `ends` are the tokens that end a choice. `unscored` tokens of the prompt need
    log probabilities still; `scores` are those of the last step.
    """

    def __init__(
        self,
        job: Job,
        *,
        block_size: int,
        received_us: int,
        seed: int,
        ends: frozenset[int] = frozenset(),
    ) -> None:
        self.job = job
        self.ends = ends
        self.unscored = 0 if job.sampling.prompt_logprobs is None else len(job.tokens) - 1
        self.scores: list[TokenLogprob] | None = None
        self.block_size = block_size
        self.received_us = received_us
        self.deadline_us = received_us + job.deadline_ms * 1000
        self.seed = seed
        self.prompt_hashes = _prompt_hashes(job, block_size)
        self.scheduled_us: int | None = None
        self.first_token_us: int | None = None
        self.cached_tokens: int | None = None
        self.prefilled_tokens = 0
        self.completion_tokens = 0
        self.sequences = [Sequence(self, choice) for choice in range(job.sampling.n)]

    @property
    def unfinished(self) -> list[Sequence]:
        return [sequence for sequence in self.sequences if sequence.finish is None]


class Sequence:
    """One choice. Its state is `computed_tokens` against `len(tokens)`: one uncomputed token is
    decoding, more is prefill, and preemption sets `computed_tokens` back to 0 with the tokens kept.

    The first `cached_blocks` of its `blocks` are in the prefix cache; `uncached_tokens` is what it
    had to compute when it was queued. `source` is the row of the last draw with its next token,
    while that has not been read; see `run.ahead`.
    """

    __slots__ = (
        "acceptance", "blocks", "cached_blocks", "choice", "computed_tokens", "counts", "finish",
        "hashes", "mask", "packed", "request", "retry_at", "source", "stream", "tokens",
        "uncached_tokens",
    )  # fmt: skip

    def __init__(self, request: Request, choice: int) -> None:
        self.request = request
        self.choice = choice
        self.stream = stream_of(request.seed, choice)
        self.tokens = list(request.job.tokens)
        self.packed = bytearray(array("I", self.tokens).tobytes())
        self.computed_tokens = 0
        self.blocks: list[int] = []
        self.hashes = list(request.prompt_hashes)
        self.cached_blocks = 0
        self.uncached_tokens = 0
        self.finish: str | None = None
        self.counts: dict[int, int] = {}
        self.mask: TokenMask | None = None
        self.acceptance = ACCEPTANCE_AT_FIRST
        self.retry_at = 0
        self.source: int | None = None

    @property
    def end(self) -> int:
        """Tokens that there are, one that has not been read included."""
        return len(self.tokens) + (self.source is not None)

    @property
    def left(self) -> int:
        """Tokens to compute."""
        return self.end - self.computed_tokens

    @property
    def background(self) -> bool:
        return self.request.job.priority == BACKGROUND

    @property
    def generated(self) -> int:
        """Tokens made so far, an end token included."""
        return len(self.tokens) - len(self.request.job.tokens)

    def append(self, token: int) -> None:
        """Add a sampled token; its key and value are computed in a later step."""
        self.tokens.append(token)
        self.packed += token.to_bytes(TOKEN_BYTES, byteorder)
        self.counts[token] = self.counts.get(token, 0) + 1
        if self.mask is not None:
            self.mask.accept(token)

    def block_tokens(self, index: int) -> bytes:
        """Token ids of block `index`, packed, for comparing."""
        width = self.request.block_size * TOKEN_BYTES
        return bytes(self.packed[index * width : (index + 1) * width])

    def block_hash(self, index: int) -> bytes:
        """Chain hash of full block `index`; extends the chain over generated tokens."""
        size = self.request.block_size
        while len(self.hashes) <= index:
            start = len(self.hashes) * size
            if self.hashes:
                chain = extend_chain(self.hashes[-1], self.tokens[start : start + size], size)
            else:
                chain = chain_hashes(self.tokens[:size], size, self.request.job.salt)
            self.hashes.extend(chain)
        return self.hashes[index]


def stream_of(seed: int, choice: int) -> int:
    """The stream of random numbers of one choice, 64 bits; see `sampling.rng`."""
    return int.from_bytes(blake2b(f"{seed}/{choice}".encode(), digest_size=8).digest())


def _prompt_hashes(job: Job, block_size: int) -> list[bytes]:
    """The gateway's chain where it fits our block size, else our own."""
    if len(job.hashes) == len(job.tokens) // block_size * HASH_BYTES:
        return split_hashes(job.hashes)
    return chain_hashes(job.tokens, block_size, job.salt)
