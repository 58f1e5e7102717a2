"""A byte-level BPE tokenizer of a few hundred tokens, made on the spot, with its two files."""

from __future__ import annotations

import json

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from inference.contract.assets import ASSET_FILES

TEXTS = [
    "Sluice runs a node near you. ",
    "naïve café 東京 🙂🙃 ",
    "room 12, two nights, 180 EUR. ",
] * 20
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|bos|>", "<|end|>", "<|user|>", "<|assistant|>"]


def tiny_tokenizer() -> Tokenizer:
    """Every byte is a token, so any text can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    return tokenizer


def tiny_files(**config: object) -> dict[str, bytes]:
    """The files that travel from node to gateway."""
    settings = {
        "chat_template": TEMPLATE,
        "bos_token": "<|bos|>",
        "eos_token": {"content": "<|end|>"},
        **config,
    }
    contents = (tiny_tokenizer().to_str().encode(), json.dumps(settings).encode())
    return dict(zip(ASSET_FILES, contents, strict=True))
