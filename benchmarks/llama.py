"""The compact engine beside llama.cpp on the same GGUF files: rates of 1 billion parameters in four
bits, and the perplexity of the shipped model in the types that llama.cpp quantizes to.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from textwrap import dedent
from typing import Any

import numpy as np
from safetensors.torch import load_file
from tokenizers import Tokenizer

from benchmarks.checkpoint import CONFIG
from benchmarks.gguf_file import Array, read_config, write_gguf
from benchmarks.recorder import Recorder
from benchmarks.sides.protocol import Side
from benchmarks.sides.started import LLAMA_PYTHON, compact, llama, run
from benchmarks.workloads import Workload, reference_prompts

Tensors = Iterator[tuple[str, Array]]
BILLION: dict[str, Any] = {
    **CONFIG,
    "vocab_size": 32_000,
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 8192,
}
SCALE = 0.02
POOL_VALUES = 1 << 26
KIND = "Q4_0"
PASSES = 3
PROMPT_TOKENS, OUTPUT_TOKENS = 512, 128
KV_MIB = 256
# Questions and answers in the shipped model's description, and how it was trained to see them.
SAMPLE = re.compile(r"^    > (.+)\n((?:    [^>\n].*\n)+)", re.MULTILINE)
TURNS = "<|bos|><|user|>{}<|end|><|assistant|>{}<|end|>"
# What llama.cpp can make of the shipped model, whose widths are no multiples of 256.
KINDS = ("Q8_0", "Q4_0")


def beside_llama(recorder: Recorder, shipped: Path) -> dict[str, Any]:
    """All figures: rates and their ratios, then perplexities."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as scratch:
        rates = _rates(recorder, shipped, Path(scratch))
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as scratch:
        return rates | {"kind": KIND, "perplexity": _perplexities(shipped, Path(scratch))}


def _rates(recorder: Recorder, shipped: Path, scratch: Path) -> dict[str, Any]:
    model = scratch / "random-1b"
    file = _quantized(model, BILLION, shipped, KIND, _random())
    with compact(model, width=1, kv_mib=KV_MIB, speculate="off") as ours, llama(file) as theirs:
        for number in range(PASSES + 1):
            (prompt,) = reference_prompts(BILLION["vocab_size"], 1, run=f"llama {number}")
            work = Workload([prompt[-PROMPT_TOKENS:]], [OUTPUT_TOKENS + 1], 1)
            rows = {}
            for side in (ours, theirs) if number % 2 else (theirs, ours):
                timed = run(side, work)
                rows[side.name] = PROMPT_TOKENS / timed.first_s[0], 1 / mean(timed.gap_s)
            # The first pass is not counted.
            if number:
                recorder.keep("llama_cpp", _compared(rows["compact"], rows["llama_cpp"]))
    return recorder.medians("llama_cpp")


def _compared(ours: tuple[float, float], theirs: tuple[float, float]) -> dict[str, float]:
    return {
        "prefill_ratio": ours[0] / theirs[0],
        "decode_ratio": ours[1] / theirs[1],
        "prefill_tok_s": ours[0],
        "decode_tok_s": ours[1],
        "llama_prefill_tok_s": theirs[0],
        "llama_decode_tok_s": theirs[1],
    }


def _perplexities(shipped: Path, scratch: Path) -> dict[str, Any]:
    """Of the same texts: of the weights as they ship, and of each type by both engines."""
    tokenizer = Tokenizer.from_file(str(shipped / "tokenizer.json"))
    samples = SAMPLE.findall((shipped / "README.md").read_text(encoding="utf-8"))
    texts = [TURNS.format(asked, dedent(told).strip()) for asked, told in samples]
    prompts = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    found: dict[str, Any] = {"tokens": sum(map(len, prompts))}
    with compact(shipped, width=1) as side:
        found["bf16"] = _perplexity(side, prompts)
    config = read_config(shipped)
    stored = load_file(shipped / "model.safetensors")
    for kind in KINDS:
        tensors = ((name, values.float().numpy()) for name, values in stored.items())
        file = _quantized(scratch / kind, config, shipped, kind, tensors)
        with compact(file.parent, width=1) as ours, llama(file) as theirs:
            both = [_perplexity(side, prompts) for side in (ours, theirs)]
        found[kind] = {
            "compact": both[0],
            "llama_cpp": both[1],
            "ratio": round(both[0] / both[1], 5),
        }
    return found


def _perplexity(side: Side, prompts: list[list[int]]) -> float:
    count = sum(len(prompt) - 1 for prompt in prompts)
    return round(math.exp(-side.call("scores", prompts=prompts) / count), 4)


def _quantized(
    folder: Path,
    config: dict[str, Any],
    like: Path,
    kind: str,
    tensors: Iterator[tuple[str, Array]],
) -> Path:
    """A folder with one GGUF file, which llama.cpp has quantized, and the tokenizer of `like`."""
    folder.mkdir()
    whole, file = folder.with_suffix(".gguf"), folder / "model.gguf"
    write_gguf(whole, config, tensors)
    argv = [LLAMA_PYTHON, "-m", "benchmarks.sides.llama", "quantize", whole, file, kind]
    subprocess.run(list(map(str, argv)), check=True, capture_output=True)
    whole.unlink()
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(like / name, folder / name)
    return file


def _random() -> Tensors:
    """A billion parameters, which start at different places of fewer random values."""
    draw = np.random.default_rng(0)
    pool = draw.standard_normal(POOL_VALUES, dtype=np.float32) * SCALE
    hidden, inner = BILLION["hidden_size"], BILLION["intermediate_size"]
    keys = BILLION["num_key_value_heads"] * BILLION["head_dim"]

    def matrix(rows: int, columns: int) -> Array:
        start = int(draw.integers(len(pool) - rows * columns + 1))
        return pool[start : start + rows * columns].reshape(rows, columns)

    yield "model.embed_tokens.weight", matrix(BILLION["vocab_size"], hidden)
    yield "model.norm.weight", np.ones(hidden, np.float32)
    for layer in range(BILLION["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, rows in {"q": hidden, "k": keys, "v": keys, "o": hidden}.items():
            yield f"{prefix}self_attn.{name}_proj.weight", matrix(rows, hidden)
        for name in ("gate", "up"):
            yield f"{prefix}mlp.{name}_proj.weight", matrix(inner, hidden)
        yield f"{prefix}mlp.down_proj.weight", matrix(hidden, inner)
        for name in ("input", "post_attention"):
            yield f"{prefix}{name}_layernorm.weight", np.ones(hidden, np.float32)
