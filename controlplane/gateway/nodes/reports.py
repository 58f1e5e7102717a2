"""Final usage that no live call settles, and the acknowledgements that let nodes forget it.

A node repeats a report until it is acknowledged, so nothing here needs a retry of its own.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from controlplane.gateway.nodes.limits import ACK_DELAY_S, LATE_REPORTS_AT_ONCE
from controlplane.gateway.ports import NodeIdentity
from inference.contract.codec import encode
from inference.contract.frames import Ack, Report

log = logging.getLogger(__name__)

# Of a report and the instance of the gateway that gave out its job: whether it is decided.
OnReport = Callable[[Report, str], Awaitable[bool]]


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
