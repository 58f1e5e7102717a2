"""Models that think: a byte tokenizer with think marks for an echo, and the shipped model."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from inference.text.model_text import ModelText
from tests.support.fleet import TEMPLATE, VOCAB_SIZE, make_model
from tests.support.shipped import SHIPPED

OPENING, CLOSING = VOCAB_SIZE, VOCAB_SIZE + 1
MARKS = ("<think>", "</think>")
# Begins the thoughts itself, or ends them at once, as hybrid models are asked to.
SWITCHED = (
    TEMPLATE
    + "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    + "{% else %}<think>\n{% endif %}"
)


def make_thinking(
    folder: Path, *, template: str = TEMPLATE, special: bool = False, marks: tuple[str, str] = MARKS
) -> Path:
    """One token per byte, and the two marks: what an echo engine serves."""
    path = make_model(folder)
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken(mark, special=special, normalized=False) for mark in marks])
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    config = {"vocab_size": VOCAB_SIZE + 2, "max_position_embeddings": 4096}
    (path / "config.json").write_text(json.dumps(config))
    return path


def text_of(folder: Path) -> ModelText:
    names = ("tokenizer.json", "tokenizer_config.json")
    return ModelText.from_files({name: (folder / name).read_bytes() for name in names})


def make_shipped(folder: Path, generation: str) -> Path:
    """The shipped model, the last two tokens of which are think marks. Its template ends with
    `generation`.
    """
    for file in SHIPPED.iterdir():
        (folder / file.name).symlink_to(file)
    written = json.loads((SHIPPED / "tokenizer.json").read_text())
    vocabulary = written["model"]["vocab"]
    size = json.loads((SHIPPED / "config.json").read_text())["vocab_size"]
    gone = [name for name, token in vocabulary.items() if token >= size - len(MARKS)]
    for name in gone:
        del vocabulary[name]
    written["model"]["merges"] = [
        pair for pair in written["model"]["merges"] if "".join(pair) not in gone
    ]
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    first = size - len(MARKS)
    written["added_tokens"] += [
        {"id": first + place, "content": mark, **plain} for place, mark in enumerate(MARKS)
    ]
    config = json.loads((SHIPPED / "tokenizer_config.json").read_text())
    config["chat_template"] += generation
    for name, content in (("tokenizer.json", written), ("tokenizer_config.json", config)):
        (folder / name).unlink()
        (folder / name).write_text(json.dumps(content))
    return folder
