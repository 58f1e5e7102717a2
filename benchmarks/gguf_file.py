"""GGUF files of our own checkpoints, as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from gguf.quants import quantize
from numpy.typing import NDArray

Array = NDArray[np.float32]
Kind = Callable[[str, tuple[int, ...]], GGMLQuantizationType]


def halves(name: str, size: tuple[int, ...]) -> GGMLQuantizationType:
    """Matrices in float16, and vectors in float32, as llama.cpp wants them."""
    return GGMLQuantizationType.F16 if len(size) > 1 else GGMLQuantizationType.F32


def write_gguf(
    path: Path, config: dict[str, Any], tensors: Iterable[tuple[str, Array]], kind: Kind = halves
) -> None:
    """Of tensors by their names in safetensors; without a vocabulary, since ids are passed."""
    architecture = {"mistral": "llama"}.get(config["model_type"], config["model_type"])
    writer = GGUFWriter(path, architecture)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config.get("rope_theta", 10000.0))
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    known = get_tensor_name_map(MODEL_ARCH[architecture.upper()], config["num_hidden_layers"])
    for name, values in tensors:
        if architecture == "llama" and name.split(".")[-2] in ("q_proj", "k_proj"):
            values = _in_pairs(values, heads if "q_proj" in name else kv_heads)
        renamed = known.get_name(name, (".weight", ".bias"))
        assert renamed is not None, name
        stored = kind(renamed, values.shape)
        writer.add_tensor(renamed, quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _in_pairs(values: Array, heads: int) -> Array:
    """The two halves of each head in turns."""
    apart = values.reshape(heads, 2, -1, *values.shape[1:])
    return apart.swapaxes(1, 2).reshape(values.shape)


def read_config(folder: Path) -> dict[str, Any]:
    """A checkpoint's config.json."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config
