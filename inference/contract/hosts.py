"""What an agent on a host and the control plane say to each other, as JSON over HTTPS.

An agent reports; the answer is all that should run on its host. Sizes are bytes, None is unknown.
"""

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

REPORT_PATH = "/api/agent/report"
ENROL_PATH = "/api/agent/enrol"
HOST_PREFIX = "host_sluice"
REPLICAS_MAX = 64
REPORT_GPUS_MAX = 64
SIZES_MAX = 256
NAME_CHARS_MAX = 200
TEXT_CHARS_MAX = 2_000
BYTES_MAX = 2**60
COUNT_MAX = 2**31 - 1
SOURCE_CHARS_MAX = 500
VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,=-]{0,99}")
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
# Arguments that staff may give: none names a file, an address or another program.
ENGINE_ARGUMENTS = {
    "compact": ("dtype", "threads", "block-size", "step-tokens", "quantize", "kv-dtype",
                "speculate", "drafts"),
    "vllm": ("dtype", "quantization", "kv-cache-dtype"),
    "echo": ("tokens-per-s",),
}  # fmt: skip
Source = Literal["folder", "hub"]
Phase = Literal["fetching", "running", "waiting", "draining", "failed"]
ReplicaId = Annotated[str, Meta(pattern="^replica_[0-9a-f]{32}$")]
ShortText = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
Text = Annotated[str, Meta(max_length=TEXT_CHARS_MAX)]
Bytes = Annotated[int, Meta(ge=0, le=BYTES_MAX)]
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Known = Annotated[float, Meta(ge=-1e9, le=1e9)]


class GpuState(msgspec.Struct, frozen=True):
    """A graphics processor as NVML tells of it; shares are 0 to 1, `errors` uncorrected ones."""

    name: ShortText | None = None
    memory: Bytes | None = None
    memory_free: Bytes | None = None
    use: Share | None = None
    celsius: Count | None = None
    watts: Known | None = None
    errors: Count | None = None


class Inventory(msgspec.Struct, frozen=True):
    """A host: its processor, memory, disk of the agent's folder, and GPUs in their own order."""

    cpu: ShortText | None = None
    cores: Count | None = None
    load: Known | None = None
    memory: Bytes | None = None
    memory_free: Bytes | None = None
    disk: Bytes | None = None
    disk_free: Bytes | None = None
    gpus: Annotated[list[GpuState], Meta(max_length=REPORT_GPUS_MAX)] = []


class ModelSource(msgspec.Struct, frozen=True):
    """Where a model comes from: a folder on the host, or a repository of the hub at a revision."""

    kind: Source
    name: str
    revision: str = ""


class ModelSize(msgspec.Struct, frozen=True):
    """What a checkpoint needs: bytes of weights, and the shape of its keys and values.

    `error` says why it cannot be told; all else is zero then. `kv_value_bytes` is of one number;
    `revision` is the commit of the hub that was looked at.
    """

    weights: Bytes = 0
    files: Bytes = 0
    layers: Count = 0
    kv_heads: Count = 0
    head_size: Count = 0
    kv_value_bytes: Count = 0
    window: Count = 0
    error: Text = ""
    revision: ShortText = ""


class ReplicaState(msgspec.Struct, frozen=True):
    """A replica as its agent sees it. `fetched` of `to_fetch` bytes are here; `digest` is over the
    names and contents of the model's files."""

    id: ReplicaId
    phase: Phase
    message: Text = ""
    pid: Count | None = None
    restarts: Count = 0
    fetched: Bytes | None = None
    to_fetch: Bytes | None = None
    digest: ShortText = ""


class HostReport(msgspec.Struct, frozen=True):
    """All that an agent tells. `held` are the ids of the nodes' credentials that it has in memory,
    by replica."""

    inventory: Inventory
    replicas: Annotated[list[ReplicaState], Meta(max_length=REPLICAS_MAX)] = []
    held: Annotated[dict[ReplicaId, ShortText], Meta(max_length=REPLICAS_MAX)] = {}
    sizes: Annotated[dict[str, ModelSize], Meta(max_length=SIZES_MAX)] = {}


class WantedReplica(msgspec.Struct, frozen=True):
    """A node that should run; `credential` only where the agent holds none that is still good.

    A `digest` is what the model's files must have. `gpu` is its number on the host, None for the
    CPU. `window` are tokens of a sequence, `kv` bytes of its cache, `share` the part of the GPU's
    or the host's memory that it was given.
    """

    id: ReplicaId
    node: str
    pool: str
    model: str
    engine: str
    source: ModelSource
    arguments: dict[str, str] = {}
    gpu: int | None = None
    window: int = 0
    kv: int = 0
    share: float = 1.0
    digest: str = ""
    credential: str = ""


class HostOrders(msgspec.Struct, frozen=True):
    """All that should run; what is not named is drained. `measure` are sources to look at."""

    replicas: list[WantedReplica] = []
    measure: dict[str, ModelSource] = {}
    gateways: list[str] = []
    report_s: float = 3.0


def source_wrong(source: ModelSource) -> tuple[str, str] | None:
    """The field of a source that is wrong, and how; None for nothing."""
    name, hub = source.name, source.kind == "hub"
    if hub and not HUB_NAME.fullmatch(name):
        return "name", "Must be an id of the hub, such as owner/model."
    if not hub and not (
        name.startswith("/") and name.isprintable() and len(name) <= SOURCE_CHARS_MAX
    ):
        return "name", "Must be the absolute path of a folder on the host."
    if source.revision and not (hub and VALUE.fullmatch(source.revision)):
        return "revision", "Must be a branch, tag or commit, of the hub only."
    return None


def credential_id(credential: str) -> str:
    """The part of a credential that names it and is no secret; empty where it has none."""
    return (credential.split("_")[2:3] or [""])[0]


def arguments_wrong(engine: str, arguments: dict[str, str]) -> str:
    """What is wrong with a replica's arguments; empty for nothing."""
    allowed = ENGINE_ARGUMENTS.get(engine)
    if allowed is None:
        return f"Must be one of {', '.join(ENGINE_ARGUMENTS)}."
    for name, value in arguments.items():
        if name not in allowed:
            return f"{name}: must be one of {', '.join(allowed)}."
        if not VALUE.fullmatch(value):
            return f"{name}: must be 1 to 100 letters, digits and any of . , _ = -."
    return ""
