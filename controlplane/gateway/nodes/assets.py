"""Tokenizers and chat templates of the fleet, fetched once over a link and kept by digest.

A node's bytes are believed only if they hash to the digest; parsing runs off the event loop.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from controlplane.gateway.nodes.limits import ASSET_TIMEOUT_S, ASSETS_KEPT_MAX, CLOSE_LOST
from controlplane.kernel.clock import monotonic_s
from inference.contract.assets import ASSET_FILES, TEMPLATE_FILES, asset_digest
from inference.contract.frames import ASSET_BYTES_MAX, ASSET_PART_BYTES, AssetPart
from inference.text.model_text import ModelText
from inference.text.pieces import PieceCache

log = logging.getLogger(__name__)

# Of what a parser or a template says of itself.
FAULT_CHARS_MAX = 300

Value = TypeVar("Value")


class BadAssets(ValueError):
    """Bytes that are not what the node offered; another node may be asked."""


class AssetSource(Protocol):
    """A node that can be asked for a digest that it offers."""

    def request_asset(self, digest: str) -> None:
        """Ask for all parts."""

    def close(self, code: int, reason: str) -> None:
        """Give the node up."""


class Fetch:
    """One digest on its way from one node."""

    __slots__ = ("asked_s", "files", "model", "size_bytes", "source")

    def __init__(self, source: AssetSource, model: str) -> None:
        self.asked_s = monotonic_s()
        self.model = model
        self.source = source
        self.size_bytes = 0
        self.files: dict[str, bytearray] = {}


class AssetStore:
    """Parsed assets by digest, the least recently used dropped beyond a bound."""

    def __init__(self, *, arrived: Callable[[str], None]) -> None:
        self._arrived = arrived
        self.pieces = PieceCache()
        self._kept: OrderedDict[str, ModelText] = OrderedDict()
        self._fetches: dict[str, Fetch] = {}
        self._refused: OrderedDict[str, None] = OrderedDict()
        self._parsing: dict[str, asyncio.Task[None]] = {}

    def get(self, digest: str) -> ModelText | None:
        """The parsed assets, when they are here."""
        text = self._kept.get(digest)
        if text is not None:
            self._kept.move_to_end(digest)
        return text

    def want(self, digest: str, source: AssetSource, *, model: str) -> None:
        """Fetch a digest from this node, unless it is here, on its way or known to be bad.

        `model` is the first that was offered with it.
        """
        if (
            digest in self._kept
            or digest in self._fetches
            or digest in self._parsing
            or digest in self._refused
        ):
            return
        self._fetches[digest] = Fetch(source, model)
        source.request_asset(digest)

    def source_lost(self, source: AssetSource) -> None:
        """Give up what was on its way from a node; another may be asked."""
        for digest in [key for key, fetch in self._fetches.items() if fetch.source is source]:
            del self._fetches[digest]

    def close_stalled(self) -> None:
        """Give up nodes that do not send what they offer; another may be asked."""
        oldest_s = monotonic_s() - ASSET_TIMEOUT_S
        for fetch in [each for each in self._fetches.values() if each.asked_s < oldest_s]:
            fetch.source.close(CLOSE_LOST, "assets did not arrive in time")

    def on_part(self, source: AssetSource, part: AssetPart) -> str | None:
        """Take one part; returns the reason when it is uncalled for. Raises `BadAssets`."""
        fetch = self._fetches.get(part.digest)
        if fetch is None or fetch.source is not source:
            return "asset.digest: not asked of this node"
        problem = _part_problem(fetch, part)
        if problem is not None:
            raise BadAssets(problem)
        fetch.size_bytes += len(part.data)
        fetch.files.setdefault(part.name, bytearray()).extend(part.data)
        if part.last:
            self._fetched(part.digest, fetch)
        return None

    async def close(self) -> None:
        await asyncio.gather(*self._parsing.values())

    def _fetched(self, digest: str, fetch: Fetch) -> None:
        files = {name: bytes(data) for name, data in fetch.files.items()}
        problem = _digest_problem(digest, files)
        if problem is not None:
            raise BadAssets(problem)
        del self._fetches[digest]
        keeping = self._keep(digest, files, fetch.model)
        self._parsing[digest] = asyncio.get_running_loop().create_task(keeping)

    async def _keep(self, digest: str, files: Mapping[str, bytes], model: str) -> None:
        try:
            text, fault = await asyncio.to_thread(_read, files, self.pieces)
        except Exception as error:  # The parser reads foreign bytes: any failure is theirs.
            said = f"{type(error).__name__}: {error}"[:FAULT_CHARS_MAX]
            log.error("model %s cannot be served digest=%s: %r", model, digest[:12], said)
            _bounded_put(self._refused, digest, None)
        else:
            if fault:
                log.warning("model %s cannot render a greeting digest=%s: %r",
                            model, digest[:12], fault[:FAULT_CHARS_MAX])  # fmt: skip
            _bounded_put(self._kept, digest, text)
        del self._parsing[digest]
        if digest in self._kept:
            self._arrived(digest)


def _read(files: Mapping[str, bytes], pieces: PieceCache) -> tuple[ModelText, str]:
    """The parsed files, and what a trial of the chat template says."""
    text = ModelText.from_files(files, pieces)
    return text, text.templates.fault()


def _bounded_put(table: OrderedDict[str, Value], key: str, value: Value) -> None:
    table[key] = value
    if len(table) > ASSETS_KEPT_MAX:
        table.popitem(last=False)


def _part_problem(fetch: Fetch, part: AssetPart) -> str | None:
    if part.name not in ASSET_FILES + TEMPLATE_FILES:
        return "asset.name: not a file of a digest"
    if len(part.data) > ASSET_PART_BYTES:
        return f"asset.data: a part of more than {ASSET_PART_BYTES} bytes"
    if fetch.size_bytes + len(part.data) > ASSET_BYTES_MAX:
        return f"asset.data: more than {ASSET_BYTES_MAX} bytes in all"
    return None


def _digest_problem(digest: str, files: Mapping[str, bytes]) -> str | None:
    if not files.keys() >= set(ASSET_FILES):
        return "asset.last: a file is missing"
    if asset_digest(files) != digest:
        return "asset.digest: the bytes do not hash to it"
    return None
