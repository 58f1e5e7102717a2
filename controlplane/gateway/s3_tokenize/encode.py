"""Prompt text to token ids; prompts given as ids are checked against the vocabulary."""

from __future__ import annotations

import asyncio

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import bad_field
from controlplane.kernel.spans import INDEX
from inference.text.model_text import ModelText

ENCODE = INDEX["s3_tokenize.encode"]
INLINE_CHARS_MAX = 32_768


def given_ids(call: Call, ask: Ask, text: ModelText) -> list[int]:
    """A prompt that came as token ids; raises `Refusal` (400)."""
    began = call.spans.clock()
    try:
        _check_ids(ask, text.vocab_size)
        return list(ask.tokens or ())
    finally:
        call.spans.add(ENCODE, began)


async def encode_prompt(call: Call, ask: Ask, prompt: str, text: ModelText) -> list[int]:
    """Token ids of the prompt; raises `Refusal` (400). A long one leaves the loop to others."""
    began = call.spans.clock()
    try:
        _check_ids(ask, text.vocab_size)
        special = ask.operation == "completion"
        if len(prompt) > INLINE_CHARS_MAX:
            tokens = await asyncio.to_thread(text.encode, prompt, add_special=special)
        else:
            tokens = text.encode(prompt, add_special=special)
        if not tokens:
            raise bad_field(ask.prompt_field, f"The prompt in '{ask.prompt_field}' is empty.")
        return tokens
    finally:
        call.spans.add(ENCODE, began)


def _check_ids(ask: Ask, vocab_size: int) -> None:
    for field, ids in (("prompt", ask.tokens), ("logit_bias", ask.sampling.logit_bias)):
        if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
            raise bad_field(field, f"'{field}' has a token id outside 0..{vocab_size - 1}.")
