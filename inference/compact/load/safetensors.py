"""Tensors of a folder with one safetensors file, or shards with an index."""

import json
from collections.abc import Set
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from inference.compact.grouped import Matrix
from inference.errors import ModelError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
STORED_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


class Safetensors:
    """Files stay open and mapped as long as the object lives; only what is taken is read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: dict[str, Any] = {}
        self._files = self._files_of_tensors()

    @property
    def names(self) -> Set[str]:
        return self._files.keys()

    def path(self, name: str) -> Path:
        return self._folder / self._files[name]

    def size_bytes(self) -> int:
        paths = [self._folder / file for file in set(self._files.values())]
        return sum(path.stat().st_size for path in paths if path.exists())

    def read(self, name: str, *size: int) -> Matrix:
        return self.stored(name, *size)

    def stored(
        self, name: str, *size: int, dtypes: tuple[torch.dtype, ...] = STORED_DTYPES
    ) -> Tensor:
        """One tensor of the file, of this size if one is given."""
        if name not in self._files:
            raise ModelError(f"{self._folder}: no weights for {name}")
        path = self.path(name)
        try:
            file = self._open(path)
            stored = file.get_slice(name)
            found = tuple(stored.get_shape())
            if size and found != size:
                raise ModelError(f"{path}: {name}: is {found}, must be {size}")
            tensor: Tensor = stored[:] if found else file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{path}: {name}: {error}") from error
        if tensor.dtype not in dtypes:
            raise ModelError(f"{path}: {name}: {tensor.dtype} is not supported")
        return tensor

    def _open(self, path: Path) -> Any:
        if path.name not in self._opened:
            try:
                self._opened[path.name] = safe_open(path, framework="pt")
            except (OSError, SafetensorError) as error:
                raise ModelError(f"{path}: {error}") from error
        return self._opened[path.name]

    def _files_of_tensors(self) -> dict[str, str]:
        index = self._folder / INDEX
        if not index.exists():
            return dict.fromkeys(self._open(self._folder / SINGLE).keys(), SINGLE)
        try:
            files = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return {str(name): Path(file).name for name, file in files.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelError(f"{index}: no usable weight_map: {error!r}") from error
