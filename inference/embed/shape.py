"""What a folder says about its encoder: config.json, and sentence-transformers' pooling next to it.

Reads no weights and imports no torch. What the encoder could not compute exactly is refused here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from inference.compact.config.fields import Fields
from inference.errors import ModelError

Pooling = Literal["mean", "cls"]
POOLING_FILE = Path("1_Pooling") / "config.json"
CROSS_ENCODER = "BertForSequenceClassification"
_POOLING_FLAG = "pooling_mode_"


@dataclass(frozen=True, kw_only=True)
class EncoderShape:
    """Everything the encoder needs to know but the weights.

    `dimensions` are the sizes that its vectors can be cut to, the whole one first; more than that
    only where the model was trained for it (Matryoshka). One that `scores` is a cross-encoder: it
    reads two texts at once, and their score is its only dimension.
    """

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int
    context_window: int
    token_types: int
    norm_eps: float
    pooling: Pooling
    dimensions: tuple[int, ...]
    scores: bool


def read_shape(folder: Path) -> EncoderShape:
    """Read and check an encoder's configuration; raises `ModelError`."""
    fields = Fields(folder / "config.json")
    if fields.values.get("model_type") != "bert":
        raise fields.error("model_type", "only 'bert' encoders are supported")
    fields.require("hidden_act", "gelu")
    fields.require("position_embedding_type", "absolute")
    if "quantization_config" in fields.values:
        raise fields.error("quantization_config", "quantized weights are not supported")
    hidden_size, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if hidden_size % heads:
        raise fields.error("num_attention_heads", f"must divide hidden_size = {hidden_size}")
    scores = CROSS_ENCODER in fields.values.get("architectures", [])
    if scores and len(fields.values.get("id2label", "no")) != 1:
        raise fields.error("id2label", "a cross-encoder must have one label")
    return EncoderShape(
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        layers=fields.integer("num_hidden_layers"),
        heads=heads,
        intermediate_size=fields.integer("intermediate_size"),
        context_window=fields.integer("max_position_embeddings"),
        token_types=fields.integer("type_vocab_size", 2, least=1 + scores),
        norm_eps=fields.number("layer_norm_eps", 1e-12),
        pooling=_pooling(folder),
        dimensions=(1,) if scores else (hidden_size, *_shorter(fields, hidden_size)),
        scores=scores,
    )


def _shorter(fields: Fields, hidden_size: int) -> list[int]:
    """Sizes that the vectors were trained to be cut to, longest first."""
    name = "matryoshka_dimensions"
    sizes = fields.values.get(name, [])
    if not isinstance(sizes, list) or not all(type(each) is int for each in sizes):
        raise fields.error(name, "must be a list of integers")
    if any(not 1 <= each <= hidden_size for each in sizes):
        raise fields.error(name, f"must lie in 1..{hidden_size}")
    return sorted(set(sizes) - {hidden_size}, reverse=True)


def _pooling(folder: Path) -> Pooling:
    """How token states become one vector; a bare encoder's are averaged."""
    path = folder / POOLING_FILE
    if not path.exists():
        return "mean"
    values = Fields(path).values
    chosen = [name for name, value in values.items() if value is True and _POOLING_FLAG in name]
    if chosen == [f"{_POOLING_FLAG}mean_tokens"]:
        return "mean"
    if chosen == [f"{_POOLING_FLAG}cls_token"]:
        return "cls"
    raise ModelError(f"{path}: {_POOLING_FLAG}*: {chosen} is not supported; mean or cls alone is")
