"""What a link needs of the fleet that holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from controlplane.gateway.nodes.drafts import DraftedTokens
from inference.contract.frames import AssetPart, Hello, KvEvents, Report
from inference.contract.places import GatewayAddress
from inference.contract.replay import Resume

if TYPE_CHECKING:
    from controlplane.gateway.nodes.link import NodeLink


class LinkRefused(Exception):
    """The fleet does not admit this node; the code closes its socket."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class BadClaim(ValueError):
    """A frame that decodes but cannot be true: one strike; the message names the field."""


class LinkHost(Protocol):
    gateway: str
    gateways: tuple[GatewayAddress, ...]

    def takes(self, pool: str) -> bool:
        """Whether nodes of this pool are for this gateway."""

    def admit(self, link: NodeLink, hello: Hello) -> None:
        """Take a node in, fencing an older one of its name; raises `LinkRefused`."""

    def resume(self, link: NodeLink, frame: Resume) -> bool:
        """Hand the socket of a new link to the one whose session this is; False if there is none.

        Raises `BadClaim`.
        """

    def broken(self, link: NodeLink, reason: str) -> None:
        """The link has lost its socket and waits for another; until then it takes no jobs."""

    def leave(self, link: NodeLink, reason: str) -> None:
        """The link is closed."""

    def changed(self, link: NodeLink) -> None:
        """The link has become ready, or takes no more new jobs."""

    def freed(self, link: NodeLink) -> None:
        """A credit came back."""

    def quarantine(self, link: NodeLink, reason: str) -> None:
        """Keep this node out for a while."""

    def spare(self, link: NodeLink, model: str) -> bool:
        """Another node has room for a job of this one."""

    def on_kv(self, link: NodeLink, events: KvEvents) -> bool:
        """Index events; False asks for a snapshot. Raises `BadEvents`."""

    def on_report(self, link: NodeLink, report: Report) -> None:
        """A final usage that no output of this link settles. Raises `BadClaim`."""

    def on_drafts(self, link: NodeLink, drafts: DraftedTokens) -> None:
        """A step had drafts, or preempted."""

    def on_asset(self, link: NodeLink, part: AssetPart) -> str | None:
        """One part of a tokenizer; why it is uncalled for, if so. Raises `BadAssets`."""
