"""A model on this host: what it needs, fetching it from the hub, and the digest of its files."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from huggingface_hub import (
    HfApi,
    get_session,
    hf_hub_download,
    scan_cache_dir,
    set_client_factory,
    snapshot_download,
)
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.file_download import repo_folder_name

from inference.contract.hosts import TEXT_CHARS_MAX, ModelSize, ModelSource, source_wrong
from inference.tls import CA_VARIABLE, own_context

CONFIG = "config.json"
WEIGHTS = ".safetensors"
# Of a repository only what a node reads: other formats of the same weights stay there.
PATTERNS = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
VALUE_BYTES_UNKNOWN = 4
# Left free beside a model that is fetched.
DISK_SPARE = 1 << 30
READ_BYTES = 1 << 20
FETCHES_AT_ONCE = 2
# Of the hub, of all repositories together: the newest that no replica uses, to go back to.
UNUSED_REVISIONS_MAX = 2
HUB_REFUSALS = (OSError, ValueError, HfHubHTTPError, HFValidationError)


class ModelAway(Exception):
    """A model cannot be had; the message says why."""


class SourceRefused(ModelAway):
    """The control plane named a source that cannot be one; `field` is the one that is wrong."""

    def __init__(self, field: str, told: str) -> None:
        super().__init__(f"source.{field}: {told}")
        self.field = field


@dataclass(frozen=True)
class Looked:
    """What a model needs, and the files that hold it once it is fetched."""

    size: ModelSize
    blobs: tuple[Path, ...] = ()

    @property
    def here(self) -> int:
        """Bytes that have been fetched, those of files under way among them."""
        found = (each for blob in self.blobs for each in blob.parent.glob(f"{blob.name}*"))
        return sum(each.stat().st_size for each in found if each.is_file())


class HostModels:
    """Models of one host: in folders below `roots`, or fetched into `data`.

    The hub is that of `HF_ENDPOINT`, its token that of `HF_TOKEN`; both stay on the host.
    """

    def __init__(self, data: Path, roots: list[Path]) -> None:
        self._hub = data / "hub"
        self._roots = [root.resolve() for root in roots]
        self._locks: dict[str, threading.Lock] = {}
        _believe_ours()

    def size(self, source: ModelSource) -> ModelSize:
        """What a model needs; in `error` why that is not known."""
        try:
            size = self.look(source).size
            # As the control plane will read it: one that it refuses would hold up the whole report.
            return msgspec.convert(msgspec.to_builtins(size), ModelSize)
        except Exception as error:  # Whatever a stranger's files say, and the hub's client raises.
            return ModelSize(error=_told(error))

    def look(self, source: ModelSource) -> Looked:
        """What a model needs, before it is fetched; raises ModelAway."""
        _sound(source)
        try:
            if source.kind == "folder":
                return Looked(_folder_size(self.folder(source.name)))
            return self._hub_look(source)
        except HUB_REFUSALS as error:
            raise ModelAway(_told(error)) from error

    def folder(self, name: str) -> Path:
        """A folder that the agent may use; raises ModelAway."""
        path = Path(name).resolve()
        if not any(path.is_relative_to(root) for root in self._roots):
            raise ModelAway(f"{name} is not below a folder of --models on this host")
        if not (path / CONFIG).is_file():
            raise ModelAway(f"{name} has no {CONFIG} on this host")
        return path

    def fetch(self, source: ModelSource) -> Path:
        """The model's folder, fetched where it is not here; raises ModelAway.

        What is here already of a fetch that ended early is not fetched again. One repository is
        fetched once at a time.
        """
        _sound(source)
        if source.kind == "folder":
            return self.folder(source.name)
        try:
            with self._lock(source.name):
                folder = snapshot_download(
                    source.name,
                    revision=source.revision or None,
                    cache_dir=self._hub,
                    allow_patterns=PATTERNS,
                    max_workers=FETCHES_AT_ONCE,
                )
        except HUB_REFUSALS as error:
            raise ModelAway(_told(error)) from error
        return Path(folder)

    def prune(self, used: Callable[[], set[str]]) -> None:
        """Delete revisions of the hub other than those of these commits, but for the newest."""
        if not self._hub.is_dir():
            return
        unused = [
            (each.last_modified, repository.repo_id, each.commit_hash)
            for repository in scan_cache_dir(self._hub).repos
            for each in repository.revisions
            if each.commit_hash not in used()
        ]
        for _, name, commit in sorted(unused, reverse=True)[UNUSED_REVISIONS_MAX:]:
            with self._lock(name):
                # It may be wanted by now.
                if commit not in used():
                    scan_cache_dir(self._hub).delete_revisions(commit).execute()

    def _lock(self, repository: str) -> threading.Lock:
        return self._locks.setdefault(repository, threading.Lock())

    def _hub_look(self, source: ModelSource) -> Looked:
        info = HfApi().model_info(
            source.name, revision=source.revision or None, files_metadata=True
        )
        wanted = [
            each
            for each in info.siblings or []
            if any(fnmatch(each.rfilename, pattern) for pattern in PATTERNS)
        ]
        config = hf_hub_download(source.name, CONFIG, revision=info.sha, cache_dir=self._hub)
        files = {each.rfilename: each.size or 0 for each in wanted}
        size = _size(Path(config).read_bytes(), files)
        blobs = self._hub / repo_folder_name(repo_id=source.name, repo_type="model") / "blobs"
        names = (each.lfs.sha256 if each.lfs else each.blob_id for each in wanted)
        return Looked(
            msgspec.structs.replace(size, revision=info.sha or ""),
            tuple(blobs / name for name in names if name),
        )


def _believe_ours() -> None:
    """Have the hub's client believe the authorities of our variable, too."""
    if os.environ.get(CA_VARIABLE, "").strip():
        usual = get_session().event_hooks
        set_client_factory(
            lambda: httpx2.Client(
                event_hooks=usual, follow_redirects=True, timeout=None, verify=own_context()
            )
        )


def _sound(source: ModelSource) -> None:
    if wrong := source_wrong(source):
        raise SourceRefused(*wrong)


def disk_wrong(files: int, free: int | None) -> str:
    """Why a fetch of so many bytes is refused; empty where there is room, or none known."""
    if free is None or files + DISK_SPARE <= free:
        return ""
    return (
        f"The disk has {free:,} bytes free; the model takes {files:,}, and {DISK_SPARE:,} "
        "must stay free."
    )


def _folder_size(folder: Path) -> ModelSize:
    files = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    return _size((folder / CONFIG).read_bytes(), files)


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


def _told(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:TEXT_CHARS_MAX]
