"""The salted chain of block hashes of a prompt, at each block size that the cluster uses."""

from collections.abc import Iterable

from controlplane.gateway.call import Call
from controlplane.kernel.spans import INDEX
from inference.contract.blocks import chain_hashes
from inference.contract.frames import BYTES_PER_TOKEN

BLOCKS = INDEX["s3_tokenize.blocks"]


def hash_blocks(
    call: Call, tokens: list[int], *, block_sizes: Iterable[int], salt: bytes
) -> dict[int, list[bytes]]:
    began = call.spans.clock()
    chains = {size: chain_hashes(tokens, size, salt) for size in set(block_sizes)}
    call.spans.add(BLOCKS, began)
    return chains


def hash_text(text: bytes, *, block_sizes: Iterable[int], salt: bytes) -> dict[int, list[bytes]]:
    """The same of a request whose tokens are not known: they have so many bytes, about."""
    words = memoryview(text[: len(text) // BYTES_PER_TOKEN * BYTES_PER_TOKEN]).cast("I")
    return {size: chain_hashes(words, size, salt) for size in block_sizes}
