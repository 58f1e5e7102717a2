"""Tensors of a checkpoint folder by name: one safetensors file, or shards with an index.

Every complaint is a `ModelError` that names the file or the tensor.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from inference.compact.load.progress import ReadingProgress
from inference.errors import ModelError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
STORED_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
# Old files carry the rotary frequencies, which follow from the configuration.
DERIVED_SUFFIX = ".rotary_emb.inv_freq"


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
