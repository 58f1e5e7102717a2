"""Chunks of requests that nobody sent, for steps that are tried before a model serves."""

from inference.compact.schedule.request import Request, Sequence
from inference.compact.schedule.scheduler import Chunk
from inference.contract.frames import Job, Sampling

# A draw that takes all the memory that one can: log probabilities, and more than the best token.
SAMPLING = Sampling(max_tokens=1, temperature=1.0, top_p=0.9, logprobs=0)


def made_up_chunk(tokens: list[int], count: int, blocks: list[int], block_size: int) -> Chunk:
    """The last `count` tokens of a prompt that has these blocks; its last row is sampled."""
    job = Job(
        request=b"", model="", tokens=tokens, salt=b"", hashes=b"", sampling=SAMPLING,
        stop_tokens=[], deadline_ms=0,
    )  # fmt: skip
    sequence = Sequence(Request(job, block_size=block_size, received_us=0, seed=0), 0)
    sequence.blocks = blocks
    return Chunk(sequence, len(tokens) - count, count, 1)
