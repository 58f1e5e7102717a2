"""The shipped model as `transformers` computes it, in float32."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from tests.support.shipped import SHIPPED


def oracle_scores(prompt: list[int]) -> list[list[float]]:
    """Log probabilities of every token behind each of the prompt's but its last."""
    with torch.inference_mode():
        table = oracle()(torch.tensor([prompt])).logits[0].float().log_softmax(dim=-1)
    scores: list[list[float]] = table[:-1].tolist()
    return scores


@cache
def oracle() -> Any:
    """The model, loaded once."""
    return AutoModelForCausalLM.from_pretrained(SHIPPED, dtype=torch.float32)
