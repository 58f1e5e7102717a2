"""Prompt text to token ids; prompts given as ids are checked against the vocabulary."""

from __future__ import annotations

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import bad_field
from controlplane.kernel.spans import INDEX
from inference.text.model_text import ModelText

ENCODE = INDEX["s3_tokenize.encode"]


def encode_prompt(call: Call, ask: Ask, prompt: str | None, text: ModelText) -> list[int]:
    """Token ids of the prompt; raises `Refusal` (400)."""
    began = call.spans.clock()
    try:
        _check_ids(ask, text.vocab_size)
        if prompt is None:
            return list(ask.tokens or ())
        tokens = text.encode(prompt, add_special=ask.operation == "completion")
        if not tokens:
            raise bad_field(ask.prompt_field, f"The prompt in '{ask.prompt_field}' is empty.")
        return tokens
    finally:
        call.spans.add(ENCODE, began)


def _check_ids(ask: Ask, vocab_size: int) -> None:
    for field, ids in (("prompt", ask.tokens), ("logit_bias", ask.sampling.logit_bias)):
        if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
            raise bad_field(field, f"'{field}' has a token id outside 0..{vocab_size - 1}.")
