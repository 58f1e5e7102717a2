"""What each stage returns: frozen, made from the records before it, in the order of the stages."""

import msgspec

from controlplane.gateway.ask import Ask
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.models import ServedModel
from controlplane.gateway.nodes.stream import RemoteTimes
from controlplane.gateway.plan import PlannedStep, RoutePlan
from controlplane.gateway.ports import Allowance, Hold, IdempotencyTicket
from controlplane.gateway.snapshot import KeyRecord, ProjectRecord, Snapshot
from controlplane.kernel.bytes_budget import Portion
from controlplane.kernel.receipt import Receipt
from inference.contract.frames import BYTES_PER_TOKEN
from inference.contract.parts import ShownPicture
from inference.contract.transfer import Transfer


class Asked(msgspec.Struct, frozen=True):
    """A checked request of a known caller, not yet counted or paid for.

    `ticket` is there where it came with an `Idempotency-Key`, `path` and `body` where its project
    keeps what was said. `portion` is what these and its pictures take of the memory for bodies,
    until it has ended.
    """

    key: KeyRecord
    snapshot: Snapshot
    ask: Ask
    plan: RoutePlan
    ticket: IdempotencyTicket | None = None
    portion: Portion | None = None
    path: str = ""
    body: bytes = b""

    @property
    def project(self) -> ProjectRecord:
        return self.snapshot.projects[self.key.project]

    def close(self) -> None:
        """Its body and pictures are needed no more."""
        if self.portion is not None:
            self.portion.free()


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """Stage 1: a request that may run, counted against its limits, its cost reserved.

    `estimated_tokens` is what the token limit was charged.
    """

    asked: Asked
    estimated_tokens: int
    allowance: Allowance
    hold: Hold


class Cluster(msgspec.Struct, frozen=True):
    """Stage 2: the nodes of one region that serve the model, the model's text objects, and the
    sizes of the nodes' blocks in tokens.
    """

    region: str
    nodes: tuple[NodeLink, ...]
    served: ServedModel
    block_sizes: frozenset[int]


class HandedOver(msgspec.Struct, frozen=True):
    """A prompt that a node has computed for another; the `receipt` says why that node.

    `apart` is when its job was sent, microseconds after arrival, and what that took.
    """

    transfer: Transfer
    receipt: Receipt
    apart: tuple[int, RemoteTimes]


class Prompt(msgspec.Struct, frozen=True):
    """Stage 3: token ids, their block hashes by block size, and the output bound that fits.

    `text` is what an engine that takes text gets instead: the request, whose `tokens` may not be
    known here. Where there are several
    prompts, `lengths` are theirs, as in a `Job`. `ignored` are paths
    of fields that the model's chat template does not read. A prompt with `pictures` has no hashes:
    token ids do not say what is in them. `transfer` says where another node has computed it.
    """

    tokens: list[int]
    chains: dict[int, list[bytes]]
    output_tokens: int
    salt: bytes
    text: bytes = b""
    lengths: list[int] = []
    ignored: tuple[str, ...] = ()
    pictures: tuple[ShownPicture, ...] = ()
    transfer: HandedOver | None = None

    @property
    def size(self) -> int:
        """Its tokens; of a text, about as many."""
        seen = sum(each.tokens for each in self.pictures) if self.pictures else 0
        return len(self.tokens) or len(self.text) // BYTES_PER_TOKEN + seen


class Prepared(msgspec.Struct, frozen=True):
    """Stages 2 and 3 of one step of the plan, which stages 4 to 6 take to a node."""

    step: PlannedStep
    cluster: Cluster
    prompt: Prompt


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Stage 4: where the request goes, and why; `cached_tokens` is what the choice believed."""

    link: NodeLink
    cached_tokens: int
    receipt: Receipt
