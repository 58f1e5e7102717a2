"""Final usage that no live call settles, and the acknowledgements that let nodes forget it.

A node repeats a report until it is acknowledged, so nothing here needs a retry of its own.

A ticket proves that a node was given a job, and by which gateway: no report counts without. All
gateways of an installation share the key, and no node has it. A ticket is good for one request, one
model and one life of one node.
"""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b, sha256
from typing import Protocol

import msgspec

from controlplane.gateway.nodes.limits import ACK_DELAY_S, LATE_REPORTS_AT_ONCE
from controlplane.gateway.ports import NodeIdentity
from inference.contract.codec import encode
from inference.contract.frames import Ack, Job, Report

PURPOSE = b"sluice.job-ticket"
MAC_BYTES = 32
log = logging.getLogger(__name__)

# Of a report and the instance of the gateway that gave out its job: whether it is decided.
OnReport = Callable[[Report, str], Awaitable[bool]]


def ticket_key(secret: bytes) -> bytes:
    """The key of tickets, derived from a secret that gateways share and nodes do not have."""
    return hmac.digest(secret, PURPOSE, sha256)


class JobTickets:
    """Gives out this gateway's tickets and checks those of all; `gateway` is its instance id.

    The first key makes them. Those under an earlier one count, too: its gateway may not have been
    restarted yet.
    """

    def __init__(self, keys: Sequence[bytes], gateway: str) -> None:
        # Keyed BLAKE2 (RFC 7693) is a MAC by itself, at a fraction of what an HMAC takes.
        self._keys = tuple(keys)
        self._gateway = gateway.encode()

    def issue(self, job: Job, *, node: str, epoch: str) -> bytes:
        """The ticket of a job for one life of a node."""
        return self._mac(self._keys[0], self._gateway, job, node, epoch) + self._gateway

    def giver(self, report: Report, *, node: str, epoch: str) -> str | None:
        """The gateway that gave this node this request for this model; None where none did."""
        mac, gateway = report.ticket[:MAC_BYTES], report.ticket[MAC_BYTES:]
        known = any(
            hmac.compare_digest(mac, self._mac(key, gateway, report, node, epoch))
            for key in self._keys
        )
        return gateway.decode() if known else None

    def _mac(self, key: bytes, gateway: bytes, of: Job | Report, node: str, epoch: str) -> bytes:
        # Encoded as a list, so that no two lists of parts make the same text.
        text = msgspec.msgpack.encode((gateway, of.request, of.model, node, epoch))
        return blake2b(text, digest_size=MAC_BYTES, key=key).digest()


class ReportSource(Protocol):
    """A link that reports come from and acknowledgements go to."""

    identity: NodeIdentity

    def send_bytes(self, data: bytes) -> None:
        """Send an encoded frame, unless the link is closed."""


class LateReports:
    """Asks the ledger about reports without a live call; acknowledges in small batches."""

    def __init__(self, on_report: OnReport) -> None:
        self._on_report = on_report
        self._live: set[bytes] = set()
        self._asking: dict[bytes, asyncio.Task[None]] = {}
        self._acks: dict[ReportSource, list[bytes]] = {}
        self._flush: asyncio.TimerHandle | None = None

    @property
    def live_calls(self) -> int:
        """Calls that have not said yet whether they settle themselves."""
        return len(self._live)

    def call_began(self, request: bytes) -> None:
        """From now on a pipeline settles this request; its reports wait."""
        self._live.add(request)

    def call_ended(self, request: bytes) -> None:
        """The pipeline is done with it; a report that still comes goes to the ledger."""
        self._live.discard(request)

    def offer(self, link: ReportSource, report: Report, gateway: str) -> None:
        """Take a node's report of a job of this gateway or another.

        Left to be repeated when a call lives or too many are asked.
        """
        request = report.request
        if request in self._live or request in self._asking:
            return
        if len(self._asking) >= LATE_REPORTS_AT_ONCE:
            return
        self._asking[request] = asyncio.get_running_loop().create_task(
            self._ask(link, report, gateway)
        )

    def acknowledge(self, link: ReportSource, request: bytes) -> None:
        """The charge is committed: the node may forget its report."""
        self._acks.setdefault(link, []).append(request)
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(ACK_DELAY_S, self.send_acks)

    async def close(self) -> None:
        """Wait for questions under way and send what is acknowledged."""
        await asyncio.gather(*self._asking.values())
        self.send_acks()

    def send_acks(self) -> None:
        """Send what is acknowledged now, rather than with what follows."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        for link, requests in self._acks.items():
            link.send_bytes(encode(Ack(requests=requests)))
        self._acks.clear()

    async def _ask(self, link: ReportSource, report: Report, gateway: str) -> None:
        try:
            if await self._on_report(report, gateway):
                self.acknowledge(link, report.request)
        except (
            Exception
        ):  # Process edge: the node repeats the report, so a failure costs time only.
            log.exception("report of node %s could not be settled", link.identity.name)
        finally:
            del self._asking[report.request]
