"""A checkpoint folder's tensors by name, whatever its files are, in the dtype that computes."""

import logging
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from inference.compact.config.quantization import FP8
from inference.compact.config.shape import ModelShape
from inference.compact.grouped import Grouped, Matrix, dense, fused
from inference.compact.load.gguf import GgufFile
from inference.compact.load.packed import PackedSafetensors
from inference.compact.load.rounding import rounded
from inference.compact.load.safetensors import INDEX, SINGLE, Safetensors
from inference.compact.load.scaled import ScaledSafetensors
from inference.compact.options import MEBIBYTE
from inference.compact.scaled import Scaled
from inference.errors import ModelError

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


# Weight and bias for torch, which multiplies dense weights only.
Plain = tuple[Tensor, Tensor | None]


class Affine(NamedTuple):
    """Weight and bias of a projection or a norm; the bias is None where there is none."""

    weight: Matrix
    bias: Tensor | None = None

    def plain(self) -> Plain:
        return dense(self.weight), self.bias


class Source(Protocol):
    """Files of one kind. `read` raises `ModelError` for a tensor that is not there, is not of the
    size named or cannot be read.
    """

    @property
    def names(self) -> Set[str]: ...

    def path(self, name: str) -> Path: ...

    def size_bytes(self) -> int: ...

    def read(self, name: str, *size: int) -> Matrix: ...


def open_source(folder: Path, shape: ModelShape) -> Source:
    """Of a folder with safetensors, else with one GGUF file."""
    found = sorted(folder.glob("*.gguf"))
    if found and not any((folder / name).exists() for name in (SINGLE, INDEX)):
        if len(found) > 1:
            raise ModelError(f"{folder}: has {len(found)} GGUF files, of which one can be read")
        return GgufFile(found[0], shape)
    if shape.quantization is not None and shape.quantization.method == FP8:
        return ScaledSafetensors(folder, shape.quantization)
    if shape.quantization is not None:
        return PackedSafetensors(folder, shape.quantization)
    return Safetensors(folder)


class Checkpoint:
    """Reads one tensor at a time, so that no second copy of the model exists."""

    def __init__(
        self, source: Source, dtype: torch.dtype, device: str, *, dense: bool, quantize: str = "off"
    ) -> None:
        self.dtype = dtype
        self.device = device
        self._source = source
        self._dense = dense
        # To what projections are rounded.
        self._quantize = quantize
        # Matrices that are stored quantized and were not kept so.
        self.widened = 0
        self._taken: set[str] = set()
        self._progress = ReadingProgress(source.size_bytes())

    def take(self, name: str, *size: int) -> Tensor:
        """The values, whatever they are stored as."""
        return self._dense_of(name, self._read(name, *size))

    def matrix(self, name: str, *size: int) -> Matrix:
        """As it is stored, if `dense` is not asked for; FP8 is only where that is."""
        weight = self._read(name, *size)
        if self._dense and isinstance(weight, Scaled):
            if not weight.finite():
                raise self._error(name, "holds values that are not finite")
            return weight.each(lambda part: part.to(self.device))
        if self._dense or not isinstance(weight, Grouped):
            self.widened += not isinstance(weight, Tensor)
            return self._dense_of(name, weight)
        if not bool((weight.scales + weight.least).isfinite().all()):
            raise self._error(name, "holds values that are not finite")
        return weight.each(lambda part: part.to(self.device))

    def affine(self, rows: Mapping[str, int], *inner: int, biased: bool = True) -> Affine:
        """Modules that read the same input, or one alone, fused; each has so many rows."""
        parts = (self.matrix(f"{name}.weight", rows[name], *inner) for name in rows)
        weight = fused([rounded(part, self._quantize) for part in parts])
        if isinstance(weight, Tensor):
            weight = weight.to(self.dtype)
        if not biased:
            return Affine(weight)
        return Affine(weight, torch.cat([self.take(f"{n}.bias", rows[n]) for n in rows]))

    def refuse_leftovers(self, spare: str | None) -> None:
        """Refuse tensors that were not read: ignoring them would serve another model."""
        for name in sorted(self._source.names - self._taken):
            if name != spare and not name.endswith(DERIVED_SUFFIX):
                raise self._error(name, "is not part of the architecture in config.json")

    def _read(self, name: str, *size: int) -> Matrix:
        weight = self._source.read(name, *size)
        self._taken.add(name)
        self._progress.add(weight.nbytes)
        return weight

    def _dense_of(self, name: str, weight: Matrix) -> Tensor:
        tensor = dense(weight).to(dtype=self.dtype, device=self.device).contiguous()
        if not bool(tensor.isfinite().all()):
            raise self._error(name, "holds values that are not finite")
        return tensor

    def _error(self, name: str, complaint: str) -> ModelError:
        return ModelError(f"{self._source.path(name)}: {name}: {complaint}")
