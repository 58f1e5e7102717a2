"""Do tokenizer and weights belong together? A token id beyond the embedding must not get far."""

import json
from pathlib import Path

from inference.compact.config.fields import Fields
from inference.errors import ModelError

# Tokens by which a chat template begins and ends what it writes.
TEMPLATE_TOKENS = ("bos_token", "eos_token")


def check_vocabulary(folder: Path, vocab_size: int) -> None:
    """Raise `ModelError` if tokenizer.json, where there is one, makes ids the model has not, or
    lacks a token that tokenizer_config.json names for the chat template.
    """
    path = folder / "tokenizer.json"
    if not path.exists():
        return
    try:
        vocabulary = _vocabulary(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{path}: no usable vocabulary: {error!r}") from error
    highest = max(vocabulary.values(), default=-1)
    if highest >= vocab_size:
        found = f"ids go up to {highest}, but the model's vocab_size is {vocab_size}"
        raise ModelError(f"{path}: vocabulary: {found}")
    if (folder / "tokenizer_config.json").exists():
        settings = Fields(folder / "tokenizer_config.json")
        for name in TEMPLATE_TOKENS:
            token = settings.values.get(name)
            text = token.get("content") if isinstance(token, dict) else token
            if text is not None and text not in vocabulary:
                raise settings.error(name, f"{text!r} is not in the vocabulary of tokenizer.json")


def _vocabulary(tokenizer: dict[str, object]) -> dict[str, int]:
    """Texts to ids: the vocabulary (a table of ids, or a list by id) and the added tokens."""
    model, added = tokenizer["model"], tokenizer.get("added_tokens", [])
    if not isinstance(model, dict) or not isinstance(added, list):
        raise TypeError("model or added_tokens")
    listed = model["vocab"]
    if isinstance(listed, list):
        ids = {str(piece): number for number, (piece, _) in enumerate(listed)}
    else:
        ids = {text: int(number) for text, number in listed.items()}
    return ids | {str(token["content"]): int(token["id"]) for token in added}
