"""Tensors of a GGUF file by the names that safetensors would have, in the order of their rows.

Lengths and offsets are checked against the file's size before anything is read by them.
"""

import math
import re
import struct
from collections.abc import Set
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from inference.compact.config.shape import ModelShape
from inference.compact.grouped import Grouped
from inference.compact.load.gguf_blocks import BLOCKS, Blocks
from inference.errors import ModelError

MAGIC, VERSIONS = b"GGUF", (2, 3)
# Of metadata, by their numbers in the file; a string and an array are told by their lengths.
STRING, ARRAY = 8, 9
SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
ARCHITECTURE, ALIGNMENT = "general.architecture", "general.alignment"
ALIGNMENT_DEFAULT = 32
DIMENSIONS_MAX = 4
ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
# Its files have the two halves of a head in turns, as llama.cpp turns them by position.
TURNED_IN_PAIRS = "llama"
LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    # They follow from the configuration.
    "rope_freqs.weight": "model.rotary_emb.inv_freq",
}


class _Entry(NamedTuple):
    size: tuple[int, ...]
    blocks: Blocks
    offset: int
    size_bytes: int


class GgufFile:
    """Reads each tensor by itself, so that no second copy of the model exists."""

    def __init__(self, path: Path, shape: ModelShape) -> None:
        self._path = path
        try:
            with path.open("rb") as file:
                header = _Header(file, path)
        except OSError as error:
            raise ModelError(f"{path}: {error}") from error
        self._entries = header.entries
        expected = ARCHITECTURES.get(shape.architecture)
        self._architecture = header.values.get(ARCHITECTURE)
        if self._architecture != expected:
            raise ModelError(
                f"{path}: {ARCHITECTURE}: {self._architecture!r} with {shape.architecture} in "
                "config.json is not supported"
            )
        self._heads = {"q_proj": shape.heads, "k_proj": shape.kv_heads}

    @property
    def names(self) -> Set[str]:
        return self._entries.keys()

    def path(self, name: str) -> Path:
        return self._path

    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self._entries.values())

    def read(self, name: str, *size: int) -> Tensor | Grouped:
        if name not in self._entries:
            raise ModelError(f"{self._path}: no weights for {name}")
        found, blocks, offset, size_bytes = self._entries[name]
        if size and found != size:
            raise ModelError(f"{self._path}: {name}: is {found}, must be {size}")
        data = bytearray(size_bytes)
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                read = file.readinto(data)
        except OSError as error:
            raise ModelError(f"{self._path}: {name}: {error}") from error
        if read != size_bytes:
            raise ModelError(f"{self._path}: {name}: the file ends within it")
        weight = blocks.weight(torch.frombuffer(data, dtype=torch.uint8), found)
        heads = self._heads.get(name.split(".")[-2])
        if self._architecture != TURNED_IN_PAIRS or heads is None:
            return weight
        order = torch.arange(found[0]).view(heads, -1, 2).transpose(1, 2).flatten()
        return (
            weight.each(lambda part: part[order]) if isinstance(weight, Grouped) else weight[order]
        )


class _Header:
    """What stands before the data: `values` of numbers and strings, and the tensors' `entries`."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path = file, path
        self._left = self._size = path.stat().st_size
        if self._take(len(MAGIC)) != MAGIC:
            raise self._error("is not a GGUF file")
        (version,) = self._numbers("I")
        if version not in VERSIONS:
            raise self._error(f"version {version} of GGUF is not supported")
        tensors, pairs = self._numbers("QQ")
        self.values: dict[str, Any] = {}
        for _ in range(pairs):
            name = self._string()
            self.values[name] = self._value(*self._numbers("I"))
        found = [self._tensor() for _ in range(tensors)]
        alignment = self.values.get(ALIGNMENT, ALIGNMENT_DEFAULT)
        if not isinstance(alignment, int) or alignment < 1:
            raise self._error(f"{ALIGNMENT}: {alignment!r} is not supported")
        start = -(-(self._size - self._left) // alignment) * alignment
        self.entries = {name: entry._replace(offset=start + entry.offset) for name, entry in found}
        for name, entry in self.entries.items():
            if entry.offset + entry.size_bytes > self._size:
                raise self._error(f"{name}: ends beyond the file")
        if len(self.entries) < len(found):
            raise self._error("has two tensors of one name")

    def _tensor(self) -> tuple[str, _Entry]:
        name = self._string()
        (dimensions,) = self._numbers("I")
        if not 1 <= dimensions <= DIMENSIONS_MAX:
            raise self._error(f"{name}: has {dimensions} dimensions")
        size = self._numbers("Q" * dimensions)[::-1]
        number, offset = self._numbers("IQ")
        if number not in BLOCKS:
            raise self._error(f"{name}: values of type {number} are not supported")
        blocks = BLOCKS[number]
        if 0 in size or size[-1] % blocks.values or (dimensions != 2 and blocks.values > 1):
            raise self._error(f"{name}: {size} cannot be in blocks of {blocks.values}")
        size_bytes = math.prod(size) // blocks.values * blocks.size_bytes
        return _renamed(name), _Entry(size, blocks, offset, size_bytes)

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            return self._skip_array(*self._numbers("IQ"))
        return self._numbers(self._scalar(kind))[0]

    def _skip_array(self, kind: int, count: int) -> None:
        if kind != STRING:
            self._take(struct.calcsize(self._scalar(kind)) * count)
            return
        for _ in range(count):
            self._take(*self._numbers("Q"))

    def _scalar(self, kind: int) -> str:
        if kind not in SCALARS:
            raise self._error(f"metadata of type {kind} is not supported")
        return SCALARS[kind]

    def _string(self) -> str:
        return self._take(*self._numbers("Q")).decode(errors="replace")

    def _numbers(self, kinds: str) -> tuple[Any, ...]:
        """Little-endian, without gaps."""
        return struct.unpack(f"<{kinds}", self._take(struct.calcsize(f"<{kinds}")))

    def _take(self, count: int) -> bytes:
        self._left -= count
        found = self._file.read(count) if self._left >= 0 else b""
        if len(found) < count:
            raise self._error("ends within its header")
        return found

    def _error(self, complaint: str) -> ModelError:
        return ModelError(f"{self._path}: {complaint}")


def _renamed(name: str) -> str:
    """A name that is not known stays, and is refused once everything known is read."""
    found = LAYER.fullmatch(name)
    if found is None or found[2] not in LAYER_NAMES:
        return NAMES.get(name, name)
    return f"model.layers.{found[1]}.{LAYER_NAMES[found[2]]}.{found[3]}"
