"""Tensors of a checkpoint folder by name: one safetensors file, or shards with an index; and the
weights of a decoder among them, fused and split as it wants them.

Every complaint is a `ModelError` that names the file or the tensor.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from inference.compact.config.architectures import ExpertShape
from inference.compact.config.shape import ModelShape
from inference.compact.load.grouped import Grouped
from inference.compact.load.placement import Placement
from inference.compact.options import MEBIBYTE
from inference.errors import ModelError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
STORED_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
# Old files carry the rotary frequencies, which follow from the configuration.
DERIVED_SUFFIX = ".rotary_emb.inv_freq"
# Large models take minutes to read; log lines say how far they are.
PROGRESS_INTERVAL_S = 2.0

log = logging.getLogger(__name__)


class ReadingProgress:
    """Counts bytes that were read of `total_bytes`; silent while all goes quickly."""

    def __init__(self, total_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total_bytes = total_bytes
        self._read_bytes = 0
        self._clock = clock
        self._said_s = clock()

    def add(self, read_bytes: int) -> None:
        self._read_bytes += read_bytes
        now = self._clock()
        if now - self._said_s >= PROGRESS_INTERVAL_S:
            self._said_s = now
            read, total = self._read_bytes // MEBIBYTE, self._total_bytes // MEBIBYTE
            log.info("reading weights %d/%d MiB", read, total)


class Affine(NamedTuple):
    """Weight and bias of a projection or a norm; the bias is None where there is none."""

    weight: Tensor | Grouped
    bias: Tensor | None = None


class Checkpoint:
    """Reads one tensor at a time, so that no second copy of the model exists.

    Files stay open and mapped as long as the object lives; only what is taken is read.
    """

    def __init__(self, folder: Path, dtype: torch.dtype, device: str) -> None:
        self.folder = folder
        self.dtype = dtype
        self.device = device
        self._opened: dict[str, Any] = {}
        self._files = self._files_of_tensors()
        self._taken: set[str] = set()
        self._progress = ReadingProgress(self._size_bytes())

    def take(self, name: str, *size: int) -> Tensor:
        if name not in self._files:
            raise ModelError(f"{self.folder}: no weights for {name}")
        path = self.folder / self._files[name]
        try:
            stored = self._open(path).get_slice(name)
            found = tuple(stored.get_shape())
            if found != size:
                raise ModelError(f"{path}: {name}: is {found}, must be {size}")
            tensor: Tensor = stored[:]
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{path}: {name}: {error}") from error
        if tensor.dtype not in STORED_DTYPES:
            raise ModelError(f"{path}: {name}: {tensor.dtype} is not supported")
        self._progress.add(tensor.nbytes)
        tensor = tensor.to(dtype=self.dtype, device=self.device).contiguous()
        if not bool(tensor.isfinite().all()):
            raise ModelError(f"{path}: {name}: holds values that are not finite")
        self._taken.add(name)
        return tensor

    def affine(self, rows: Mapping[str, int], *inner: int, biased: bool = True) -> Affine:
        """Modules that read the same input, or one alone, fused; each has so many rows."""
        weights = [self.take(f"{name}.weight", count, *inner) for name, count in rows.items()]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        if not biased:
            return Affine(weight)
        return Affine(weight, torch.cat([self.take(f"{n}.bias", rows[n]) for n in rows]))

    def refuse_leftovers(self, spare: str | None) -> None:
        """Refuse tensors that were not read: ignoring them would serve another model."""
        for name in sorted(self._files.keys() - self._taken):
            if name != spare and not name.endswith(DERIVED_SUFFIX):
                path = self.folder / self._files[name]
                raise ModelError(f"{path}: {name}: is not part of the architecture in config.json")

    def _size_bytes(self) -> int:
        paths = [self.folder / file for file in set(self._files.values())]
        return sum(path.stat().st_size for path in paths if path.exists())

    def _open(self, path: Path) -> Any:
        if path.name not in self._opened:
            try:
                self._opened[path.name] = safe_open(path, framework="pt")
            except (OSError, SafetensorError) as error:
                raise ModelError(f"{path}: {error}") from error
        return self._opened[path.name]

    def _files_of_tensors(self) -> dict[str, str]:
        index = self.folder / INDEX
        if not index.exists():
            return dict.fromkeys(self._open(self.folder / SINGLE).keys(), SINGLE)
        try:
            files = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return {str(name): Path(file).name for name, file in files.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelError(f"{index}: no usable weight_map: {error!r}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerWeights:
    """One decoder layer; projections that read the same input are fused.

    `head_norms` are those of queries and of keys. In a layer with experts `router` is
    `[experts, hidden]`, and `gate_up` and `down` are stacked over the experts.
    """

    input_norm: Tensor
    qkv: Affine
    head_norms: tuple[Tensor, Tensor] | None
    out: Affine
    mlp_norm: Tensor
    gate_up: Affine
    down: Affine
    router: Tensor | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """A whole model. `head` is the embedding itself where the two are tied."""

    embedding: Tensor
    layers: list[LayerWeights]
    norm: Tensor
    head: Tensor | Grouped


def load_weights(folder: Path, shape: ModelShape, placement: Placement) -> Weights:
    """Read all tensors the shape asks for, in the placement's dtype and on its device."""
    checkpoint = Checkpoint(folder, placement.torch_dtype, placement.device)
    loader = _Loader(checkpoint, shape)
    take = checkpoint.take
    embedding = take("model.embed_tokens.weight", shape.vocab_size, shape.hidden_size)
    head = embedding
    if not shape.tied_embeddings:
        head = take("lm_head.weight", shape.vocab_size, shape.hidden_size)
    weights = Weights(
        embedding=embedding,
        layers=[loader.layer(index) for index in range(shape.layers)],
        norm=take("model.norm.weight", shape.hidden_size),
        head=head,
    )
    checkpoint.refuse_leftovers("lm_head.weight" if shape.tied_embeddings else None)
    return weights


class _Loader:
    def __init__(self, checkpoint: Checkpoint, shape: ModelShape) -> None:
        self.take = checkpoint.take
        self.affine = checkpoint.affine
        self.shape = shape

    def layer(self, index: int) -> LayerWeights:
        shape, hidden = self.shape, self.shape.hidden_size
        prefix = f"model.layers.{index}."
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        qkv = {f"{attention}q_proj": queries} | {f"{attention}{name}_proj": keys for name in "kv"}
        inner, router, experts = shape.intermediate_size, None, shape.experts
        if experts is not None and index in experts.layers:
            router, gate_up, down = self._experts(prefix, experts)
        else:
            gates = {f"{mlp}gate_proj": inner, f"{mlp}up_proj": inner}
            gate_up = self.affine(gates, hidden, biased=shape.mlp_bias)
            down = self.affine({f"{mlp}down_proj": hidden}, inner, biased=shape.mlp_bias)
        norms = None
        if shape.qk_norm:
            size = shape.head_dim
            query_norm, key_norm = (self.take(f"{attention}{n}_norm.weight", size) for n in "qk")
            norms = query_norm, key_norm
        return LayerWeights(
            input_norm=self.take(f"{prefix}input_layernorm.weight", hidden),
            qkv=self.affine(qkv, hidden, biased=shape.qkv_bias),
            head_norms=norms,
            out=self.affine({f"{attention}o_proj": hidden}, queries, biased=shape.out_bias),
            mlp_norm=self.take(f"{prefix}post_attention_layernorm.weight", hidden),
            gate_up=gate_up,
            down=down,
            router=router,
        )

    def _experts(self, prefix: str, experts: ExpertShape) -> tuple[Tensor, Affine, Affine]:
        """Router, gate-and-up and down. Copied expert by expert: no second copy of all exists."""
        hidden, names = self.shape.hidden_size, experts.names
        module = f"{prefix}{names.module}."
        router = self.take(f"{module}gate.weight", experts.count, hidden)
        gate_up = router.new_empty(experts.count, 2 * experts.width, hidden)
        down = router.new_empty(experts.count, hidden, experts.width)
        for number in range(experts.count):
            expert = f"{module}experts.{number}."
            gates = dict.fromkeys((f"{expert}{names.gate}", f"{expert}{names.up}"), experts.width)
            gate_up[number] = self.affine(gates, hidden, biased=False).weight
            down[number] = self.take(f"{expert}{names.down}.weight", hidden, experts.width)
        return router, Affine(gate_up), Affine(down)
