"""The order of stage 3's layers, and its result."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.s3_tokenize.blocks import hash_blocks
from controlplane.gateway.s3_tokenize.encode import encode_prompt
from controlplane.gateway.s3_tokenize.template import prompt_text
from controlplane.gateway.s3_tokenize.window import Room, fit_window
from inference.text.model_text import ModelText


class Prompt(msgspec.Struct, frozen=True):
    """Token ids, their block hashes by block size, and the output bound that fits."""

    tokens: list[int]
    chains: dict[int, list[bytes]]
    output_tokens: int
    salt: bytes


def encode_ask(call: Call, ask: Ask, text: ModelText) -> list[int]:
    """Template and encode; raises `Refusal` (400)."""
    prompt = None if ask.tokens is not None else prompt_text(call, ask, text)
    return encode_prompt(call, ask, prompt, text)


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
