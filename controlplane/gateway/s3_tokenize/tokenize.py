"""The order of stage 3's layers."""

from collections.abc import Iterable, Iterator

import msgspec

from controlplane.gateway.ask import Ask, Inputs
from controlplane.gateway.call import Call
from controlplane.gateway.results import Cluster, Prompt
from controlplane.gateway.s3_tokenize import encode
from controlplane.gateway.s3_tokenize.blocks import hash_blocks
from controlplane.gateway.s3_tokenize.template import prompt_text
from controlplane.gateway.s3_tokenize.window import (
    ContextWindow,
    check_length,
    check_texts,
    fit_inputs,
    fit_window,
)
from inference.text.model_text import ModelText

# Texts are encoded by portions of about this size, so that too many of them are found out early.
PORTION_CHARS = 65_536


async def encode_ask(
    call: Call, ask: Ask, text: ModelText, *, window_tokens: int, salt: bytes
) -> list[int]:
    """Template and encode; raises `Refusal` (400)."""
    if ask.tokens is not None:
        ids = encode.given_ids(call, ask, text)
    else:
        prompt = prompt_text(call, ask, text)
        check_length(ask, prompt, text, window_tokens=window_tokens)
        ids = await encode.encode_prompt(call, ask, prompt, text, salt=salt)
    fits = max(1, window_tokens - max(1, ask.output_tokens or 0))
    return last_of([ids], ask.truncate, fits)[0]


async def encode_inputs(
    call: Call, inputs: Inputs, text: ModelText, *, window_tokens: int
) -> list[list[int]]:
    """Encode each input, and see that it fits the window; raises `Refusal` (400)."""
    if inputs.tokens:
        encoded = last_of(encode.given_inputs(call, inputs, text), inputs.truncate, window_tokens)
        fit_inputs(call, inputs, encoded, window_tokens=window_tokens)
        return encoded
    check_texts(call, inputs, window_tokens=window_tokens)
    encoded = []
    for portion in _portions(inputs.texts):
        since = len(encoded)
        fresh = await encode.encode_texts(call, portion, text)
        encoded += last_of(fresh, inputs.truncate, window_tokens)
        fit_inputs(call, inputs, encoded, window_tokens=window_tokens, since=since)
    return encoded


def last_of(encoded: list[list[int]], truncate: int | None, fits: int) -> list[list[int]]:
    """The last tokens of each, as many as are wanted; -1 is all that fits."""
    if truncate is None:
        return encoded
    return [ids[-(fits if truncate < 0 else truncate) :] for ids in encoded]


async def encode_pairs(
    call: Call, inputs: Inputs, text: ModelText, *, window_tokens: int
) -> list[list[int]]:
    """Two texts as one input, as BERT reads them: the second without the token before a text."""
    alone = await encode_inputs(call, inputs, text, window_tokens=window_tokens)
    joined = [alone[one] + alone[two][1:] for one, two in inputs.pairs]
    named = msgspec.structs.replace(inputs, names=[inputs.names[two] for _, two in inputs.pairs])
    fit_inputs(call, named, joined, window_tokens=window_tokens)
    return joined


def _portions(texts: Iterable[str]) -> Iterator[list[str]]:
    portion: list[str] = []
    chars = 0
    for each in texts:
        portion.append(each)
        chars += len(each)
        if chars >= PORTION_CHARS:
            yield portion
            portion, chars = [], 0
    if portion:
        yield portion


def tokenize(
    call: Call, ask: Ask, tokens: list[int], *, window: ContextWindow, cluster: Cluster, salt: bytes
) -> Prompt:
    """Window and block hashes for encoded tokens; raises `Refusal` (400)."""
    fits = fit_window(call, ask, prompt_tokens=len(tokens), window=window)
    chains = hash_blocks(call, tokens, block_sizes=cluster.block_sizes, salt=salt)
    return Prompt(tokens, chains, fits, salt)
