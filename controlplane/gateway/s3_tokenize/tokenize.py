"""The order of stage 3's layers, and its result."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.s3_tokenize.blocks import hash_blocks
from controlplane.gateway.s3_tokenize.encode import encode_prompt, given_ids
from controlplane.gateway.s3_tokenize.template import prompt_text
from controlplane.gateway.s3_tokenize.window import Room, check_length, fit_window
from inference.text.model_text import ModelText


class Prompt(msgspec.Struct, frozen=True):
    """Token ids, their block hashes by block size, and the output bound that fits."""

    tokens: list[int]
    chains: dict[int, list[bytes]]
    output_tokens: int
    salt: bytes


async def encode_ask(call: Call, ask: Ask, text: ModelText, *, window_tokens: int) -> list[int]:
    """Template and encode; raises `Refusal` (400)."""
    if ask.tokens is not None:
        return given_ids(call, ask, text)
    prompt = prompt_text(call, ask, text)
    check_length(ask, prompt, text, window_tokens=window_tokens)
    return await encode_prompt(call, ask, prompt, text)


def tokenize(
    call: Call,
    ask: Ask,
    tokens: list[int],
    *,
    room: Room,
    block_sizes: Iterable[int],
    salt: bytes,
) -> Prompt:
    """Window and block hashes for encoded tokens; raises `Refusal` (400)."""
    fits = fit_window(call, ask, prompt_tokens=len(tokens), room=room)
    chains = hash_blocks(call, tokens, block_sizes=block_sizes, salt=salt)
    return Prompt(tokens, chains, fits, salt)
