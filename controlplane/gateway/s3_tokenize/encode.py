"""Prompt text to token ids; prompts given as ids are checked against the vocabulary."""

import asyncio

from controlplane.gateway.ask import Ask, Inputs
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import Refusal, bad_field
from controlplane.kernel.spans import INDEX
from inference.text.model_text import ModelText

ENCODE = INDEX["s3_tokenize.encode"]
INLINE_CHARS_MAX = 32_768
# Texts to embed are many and short, which costs more by the character.
INLINE_TEXTS_CHARS_MAX = 1_024


def given_ids(call: Call, ask: Ask, text: ModelText) -> list[int]:
    """A prompt that came as token ids; raises `Refusal` (400)."""
    began = call.spans.clock()
    try:
        _check_ids(ask, text.vocab_size)
        return list(ask.tokens or ())
    finally:
        call.spans.add(ENCODE, began)


async def encode_prompt(
    call: Call, ask: Ask, prompt: str, text: ModelText, *, salt: bytes
) -> list[int]:
    """Token ids of the prompt; raises `Refusal` (400). A long one leaves the loop to others.

    What was encoded before under the same `salt`, which a tenant has, is not encoded again.
    """
    began = call.spans.clock()
    try:
        _check_ids(ask, text.vocab_size)
        special = ask.special or ask.operation == "completion"
        draft = text.draft(prompt, add_special=special, owner=salt)
        if draft.chars > INLINE_CHARS_MAX:
            await asyncio.to_thread(draft.encode)
        else:
            draft.encode()
        tokens = draft.ids()
        if not tokens:
            raise bad_field(ask.prompt_field, f"'{ask.prompt_field}' is empty.")
        return tokens
    finally:
        call.spans.add(ENCODE, began)


def given_inputs(call: Call, inputs: Inputs, text: ModelText) -> list[list[int]]:
    """Inputs that came as token ids, taken as they are; raises `Refusal` (400)."""
    began = call.spans.clock()
    try:
        for place, ids in enumerate(inputs.tokens):
            if max(ids) >= text.vocab_size:
                field = inputs.field(place)
                raise _foreign_id(field, text.vocab_size)
        return list(inputs.tokens)
    finally:
        call.spans.add(ENCODE, began)


async def encode_texts(call: Call, texts: list[str], text: ModelText) -> list[list[int]]:
    """Token ids of each text, with the model's special tokens."""
    began = call.spans.clock()
    try:
        if sum(map(len, texts)) > INLINE_TEXTS_CHARS_MAX:
            return await asyncio.to_thread(text.encode_all, texts)
        return text.encode_all(texts)
    finally:
        call.spans.add(ENCODE, began)


def _check_ids(ask: Ask, vocab_size: int) -> None:
    for field, ids in (
        (ask.prompt_field, ask.tokens),
        ("logit_bias", ask.sampling.logit_bias),
        ("stop_token_ids", ask.stop_tokens),
    ):
        if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
            raise _foreign_id(field, vocab_size)


def _foreign_id(field: str, vocab_size: int) -> Refusal:
    return bad_field(field, f"'{field}' contains a token id outside 0..{vocab_size - 1}.")
