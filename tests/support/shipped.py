"""The shipped model's folder, and prompts of a known length for it."""

from __future__ import annotations

import random
from pathlib import Path

from tokenizers import Tokenizer

SHIPPED = Path(__file__).resolve().parents[2] / "inference" / "assets" / "sluice-5m"
END_TOKEN = "<|end|>"
ORDINARY_FROM, ORDINARY_TO = 300, 4000


def no_end() -> dict[str, int]:
    """A logit bias that keeps the model talking."""
    end = Tokenizer.from_file(str(SHIPPED / "tokenizer.json")).token_to_id(END_TOKEN)
    return {str(end): -100}


def long_prompt(tokens: int) -> list[int]:
    """Ordinary token ids, the same at every call."""
    return random.Random(3).choices(range(ORDINARY_FROM, ORDINARY_TO), k=tokens)
