"""Do tokenizer and weights belong together? A token id beyond the embedding must not get far."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

from inference.engines.base import ModelError


class Shape(Protocol):
    """What is asked of any model's configuration."""

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""


def check_vocabulary(folder: Path, shape: Shape) -> None:
    """Raise `ModelError` if tokenizer.json, where there is one, makes ids the model has not."""
    path = folder / "tokenizer.json"
    if not path.exists():
        return
    try:
        highest = _highest_id(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{path}: no usable vocabulary: {error!r}") from error
    if highest >= shape.vocab_size:
        raise ModelError(
            f"{path}: vocabulary: ids go up to {highest}, but the model's vocab_size is "
            f"{shape.vocab_size}"
        )


def _highest_id(tokenizer: dict[str, object]) -> int:
    """Of the vocabulary (a table of ids, or a list by id) and the added tokens."""
    model, added = tokenizer["model"], tokenizer.get("added_tokens", [])
    if not isinstance(model, dict) or not isinstance(added, list):
        raise TypeError("model or added_tokens")
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):
        ids = [len(vocabulary) - 1]
    else:
        ids = [int(number) for number in vocabulary.values()]
    return max([*ids, *(int(token["id"]) for token in added)])
