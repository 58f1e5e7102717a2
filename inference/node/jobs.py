"""Which gateway each job belongs to, and the final reports kept until a gateway has settled them.

A job belongs to a link, by its URL, and its report to the process behind that link, by its instance
id: only that process may still try the same request elsewhere, so no other may settle it while
it lives. It knows neither sockets nor the engine; time comes in as an argument.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from inference.contract.frames import BYTES_PER_TOKEN, Job, Output, Report, Usage
from inference.errors import JobRefused
from inference.node.options import REPORT_REPEAT_S, REPORTS_HELD_MAX

LOST = ""
ANYONE = ""
NO_USAGE = Usage(prompt_tokens=0, cached_tokens=0, completion_tokens=0)


class HeldJob:
    """A job in the engine. `owner` is `LOST` when its link is gone and its outputs have no reader.

    `settled` is set when the gateway has charged it before its end, as after a stop string.
    `delivered`: some of its answer is out, or a choice has ended, so it cannot be restarted
    unseen. Until then its `queued_tokens` count as waiting. `usage` is that of its last
    output; while its link is broken, `read` is that of the last before: it is not charged for more
    unless the gateway is reached again.
    """

    __slots__ = (
        "choices_open", "delivered", "gateway", "model", "owner", "queued_tokens", "read",
        "settled", "ticket", "usage",
    )  # fmt: skip

    def __init__(self, job: Job, owner: str, gateway: str) -> None:
        self.owner = owner
        self.gateway = gateway
        self.model = job.model
        self.ticket = job.ticket
        self.choices_open = job.choices
        self.delivered = False
        # Nobody is charged for a prompt that another node goes on from.
        self.settled = job.hands_over
        self.usage = NO_USAGE
        self.read: Usage | None = None
        tokens = len(job.tokens) or len(job.request_json) // BYTES_PER_TOKEN
        self.queued_tokens = tokens + sum(map(len, job.inputs))


@dataclass(slots=True, eq=False)
class HeldReport:
    """A report and when it is to be sent next; `gateway` is `ANYONE` when its own is dead.

    `read` is what its `owner` had got when the link broke, None unless the job ended after that.
    """

    gateway: str
    owner: str
    read: Usage | None
    report: Report
    due_s: float

    def lose(self) -> None:
        """What came after the break was never read, so it is not charged."""
        if self.read is not None:
            self.report = msgspec.structs.replace(self.report, usage=self.read, finish="cancelled")
            self.read = None


@dataclass(slots=True)
class Held:
    jobs: int = 0
    queued_tokens: int = 0


class JobTable:
    """All jobs in the engine and all reports not acknowledged; `owner` is a link's URL."""

    def __init__(self, *, reports_max: int = REPORTS_HELD_MAX) -> None:
        self._reports_max = reports_max
        self._jobs: dict[bytes, HeldJob] = {}
        self._reports: dict[bytes, HeldReport] = {}
        self._held: dict[str, Held] = {}
        self.queued_tokens = 0

    @property
    def jobs_count(self) -> int:
        return len(self._jobs)

    @property
    def reports_count(self) -> int:
        """Reports that no gateway has acknowledged."""
        return len(self._reports)

    def held(self) -> dict[str, int]:
        return {owner: held.jobs for owner, held in self._held.items()}

    def others(self, owner: str) -> tuple[int, int]:
        """Jobs of all others, and their prompt tokens that wait."""
        own = self._held.get(owner)
        if own is None:
            return len(self._jobs), self.queued_tokens
        return len(self._jobs) - own.jobs, self.queued_tokens - own.queued_tokens

    def accept(self, job: Job, owner: str, gateway: str) -> int:
        """Take a job in; returns its prompt tokens. Raises `JobRefused`."""
        if job.request in self._jobs or job.request in self._reports:
            raise JobRefused("bad_job", "request: this node has had it already")
        if len(self._jobs) + len(self._reports) >= self._reports_max:
            # Each job ends in a report, so the bound must leave room for those running.
            raise JobRefused("full", f"{self._reports_max} reports wait for acknowledgement")
        held = self._jobs[job.request] = HeldJob(job, owner, gateway)
        self._count(held, owner, 1)
        return held.queued_tokens

    def discard(self, request: bytes) -> str | None:
        """The engine refused it; returns its owner, None when that is gone."""
        held = self._jobs.pop(request, None)
        if held is None:
            return None
        self._count(held, held.owner, -1)
        return held.owner or None

    def untouched(self) -> list[bytes]:
        """Jobs of which nothing was delivered: another node can restart them."""
        return [request for request, held in self._jobs.items() if not held.delivered]

    def owned_by(self, request: bytes, owner: str) -> bool:
        """The job is in the engine for this gateway."""
        held = self._jobs.get(request)
        return held is not None and held.owner == owner

    def requests(self) -> list[bytes]:
        return list(self._jobs)

    def split(self, outputs: Iterable[Output], now_s: float) -> dict[str, list[Output]]:
        """Outputs by connected owner; a request's last output leaves a report behind."""
        groups: dict[str, list[Output]] = {}
        for output in outputs:
            held = self._jobs.get(output.request)
            if held is None:
                continue
            if not held.delivered and (output.delivered or output.finish is not None):
                held.delivered = True
                self._held[held.owner].queued_tokens -= held.queued_tokens
                self.queued_tokens -= held.queued_tokens
                held.queued_tokens = 0
            held.usage = output.usage
            if held.owner != LOST:
                groups.setdefault(held.owner, []).append(output)
            if output.finish is not None:
                self._finish(held, output, now_s)
        return groups

    def suspend(self, owner: str) -> None:
        """The link broke: whether its outputs from now on are read is not known yet."""
        for held in self._jobs.values():
            if held.owner == owner:
                held.read = held.usage

    def resume(self, owner: str) -> None:
        """The link was resumed and has received all outputs."""
        suspended: list[HeldJob | HeldReport] = [*self._jobs.values(), *self._reports.values()]
        for held in suspended:
            if held.owner == owner:
                held.read = None

    def disconnect(self, owner: str) -> list[bytes]:
        """The link is lost: returns its jobs, which are to be cancelled."""
        lost = [request for request, held in self._jobs.items() if held.owner == owner]
        for request in lost:
            held = self._jobs[request]
            self._count(held, owner, -1)
            held.owner = LOST
            self._count(held, LOST, 1)
        for report in self._reports.values():
            if report.owner == owner:
                report.lose()
        return lost

    def connect(self, gateway: str) -> None:
        """A link to this gateway is up: its reports are due at once."""
        for held in self._reports.values():
            if held.gateway == gateway:
                held.due_s = 0.0

    def reporting(self) -> set[str]:
        """Gateways whose reports are still here."""
        return {held.gateway for held in self._reports.values()} - {ANYONE}

    def bequeath(self, gateway: str) -> None:
        """This gateway is dead and settles nothing more: any other may have its reports."""
        for held in self._reports.values():
            if held.gateway == gateway:
                held.gateway, held.due_s = ANYONE, 0.0

    def due_reports(self, gateway: str, now_s: float) -> list[Report]:
        """Reports to send now; each comes again until it is acknowledged."""
        due = [
            held
            for held in self._reports.values()
            if held.due_s <= now_s and held.gateway in (gateway, ANYONE)
        ]
        for held in due:
            held.due_s = now_s + REPORT_REPEAT_S
        return [held.report for held in due]

    def acknowledge(self, requests: Iterable[bytes], owner: str, gateway: str) -> None:
        """Forget reports whose charge is on the ledger, and keep none for jobs still running."""
        for request in requests:
            held = self._reports.get(request)
            if held is not None and held.gateway in (gateway, ANYONE):
                del self._reports[request]
            elif self.owned_by(request, owner):
                self._jobs[request].settled = True

    def _count(self, held: HeldJob, owner: str, jobs: int) -> None:
        """Add a job to an owner's figures, or take it out."""
        known = self._held.setdefault(owner, Held())
        known.jobs += jobs
        known.queued_tokens += jobs * held.queued_tokens
        self.queued_tokens += jobs * held.queued_tokens
        if not known.jobs:
            del self._held[owner]

    def _finish(self, held: HeldJob, output: Output, now_s: float) -> None:
        held.choices_open -= 1
        if held.choices_open:
            return
        del self._jobs[output.request]
        self._count(held, held.owner, -1)
        if held.settled:
            return
        report = Report(
            request=output.request,
            model=held.model,
            usage=output.usage,
            timing=output.timing,
            finish=output.finish or "",
            ticket=held.ticket,
        )
        # The last output carries the same figures, so a connected gateway needs no second frame
        # unless it fails to acknowledge.
        due_s = now_s + REPORT_REPEAT_S
        kept = HeldReport(held.gateway, held.owner, held.read, report, due_s)
        if held.owner == LOST:
            kept.lose()
        self._reports[output.request] = kept
