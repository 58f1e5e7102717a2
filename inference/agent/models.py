"""A model on this host: what it needs, fetching it from the hub, and the digest of its files."""

import os
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import tqdm

from inference.contract.hosts import TEXT_CHARS_MAX, ModelSize, ModelSource

CONFIG = "config.json"
WEIGHTS = ".safetensors"
# Of a repository only what a node reads: other formats of the same weights stay there.
PATTERNS = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
VALUE_BYTES_UNKNOWN = 4
# Left free beside a model that is fetched.
DISK_SPARE = 1 << 30
READ_BYTES = 1 << 20
HUB_REFUSALS = (OSError, ValueError, HfHubHTTPError, HFValidationError)


class ModelAway(Exception):
    """A model cannot be had; the message says why."""


class HostModels:
    """HostModels of one host: in folders below `roots`, or fetched into `data`.

    The hub is that of `HF_ENDPOINT`, its token that of `HF_TOKEN`; both stay on the host.
    """

    def __init__(self, data: Path, roots: list[Path]) -> None:
        self._hub = data / "hub"
        self._roots = [root.resolve() for root in roots]

    def size(self, source: ModelSource) -> ModelSize:
        """What a model needs; in `error` why that is not known."""
        try:
            if source.kind == "folder":
                return self._folder_size(self.folder(source.name))
            return self._hub_size(source)
        except (ModelAway, *HUB_REFUSALS) as error:
            return ModelSize(error=_told(error))

    def folder(self, name: str) -> Path:
        """A folder that the agent may use; raises ModelAway."""
        path = Path(name).resolve()
        if not any(path.is_relative_to(root) for root in self._roots):
            raise ModelAway(f"{name} is not below a folder of --models on this host")
        if not (path / CONFIG).is_file():
            raise ModelAway(f"{name} has no {CONFIG} on this host")
        return path

    def fetch(self, source: ModelSource, progress: Callable[[int], None]) -> Path:
        """The model's folder, fetched where it is not here; raises ModelAway.

        `progress` gets bytes as they arrive. What is here already of a fetch is not fetched again.
        """
        if source.kind == "folder":
            return self.folder(source.name)
        try:
            return Path(
                snapshot_download(
                    source.name,
                    revision=source.revision or None,
                    cache_dir=self._hub,
                    allow_patterns=PATTERNS,
                    tqdm_class=_bars(progress),
                    max_workers=2,
                )
            )
        except HUB_REFUSALS as error:
            raise ModelAway(_told(error)) from error

    def disk_wrong(self, files: int, free: int | None) -> str:
        """Why a fetch of so many bytes is refused; empty where there is room, or none known."""
        if free is None or files + DISK_SPARE <= free:
            return ""
        return (
            f"The disk has {free:,} bytes free; the model takes {files:,}, and {DISK_SPARE:,} "
            "must stay free."
        )

    def _folder_size(self, folder: Path) -> ModelSize:
        files = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
        return _size((folder / CONFIG).read_bytes(), files)

    def _hub_size(self, source: ModelSource) -> ModelSize:
        api, revision = HfApi(), source.revision or None
        info = api.model_info(source.name, revision=revision, files_metadata=True)
        files = {each.rfilename: each.size or 0 for each in info.siblings or []}
        config = hf_hub_download(source.name, CONFIG, revision=revision, cache_dir=self._hub)
        size = _size(Path(config).read_bytes(), files)
        return msgspec.structs.replace(size, revision=info.sha or "")


def files_digest(folder: Path) -> str:
    """SHA-256 in hexadecimal over names and contents of the model's files, in their order."""
    total = sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        each = sha256()
        with path.open("rb") as file:
            while block := file.read(READ_BYTES):
                each.update(block)
        total.update(path.name.encode() + b"\0" + each.digest())
    return total.hexdigest()


def _size(config_json: bytes, files: dict[str, int]) -> ModelSize:
    weights = sum(size for name, size in files.items() if name.endswith(WEIGHTS))
    if not weights:
        raise ModelAway("It has no weights as safetensors.")
    config = msgspec.json.decode(config_json, type=dict[str, Any])
    # HostModels that read images, too, have what counts here in a part of their own.
    text = {**config, **(config.get("text_config") or {})}
    heads = int(text.get("num_attention_heads") or 0)
    hidden = int(text.get("hidden_size") or 0)
    dtype = str(text.get("dtype") or text.get("torch_dtype"))
    return ModelSize(
        weights=weights,
        files=sum(files.values()),
        layers=int(text.get("num_hidden_layers") or 0),
        kv_heads=int(text.get("num_key_value_heads") or heads),
        head_size=int(text.get("head_dim") or (hidden // heads if heads else 0)),
        kv_value_bytes=VALUE_BYTES.get(dtype, VALUE_BYTES_UNKNOWN),
        window=int(text.get("max_position_embeddings") or 0),
    )


def _bars(progress: Callable[[int], None]) -> type[tqdm]:
    """A bar of the hub's client that shows nothing and passes bytes on."""
    lock = threading.Lock()

    class ByteBar(tqdm):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **more: Any) -> None:
            self._bytes = more.get("unit") == "B"
            super().__init__(*args, **{**more, "file": open(os.devnull, "w"), "disable": False})

        def update(self, n: float | None = 1) -> bool | None:
            if self._bytes and n:
                with lock:
                    progress(int(n))
            return super().update(n)

    return ByteBar


def _told(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:TEXT_CHARS_MAX]
