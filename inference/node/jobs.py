"""Which gateway each job belongs to, and the final reports kept until that gateway has them.

It knows neither sockets nor the engine; time comes in as an argument.
"""

from __future__ import annotations

from collections.abc import Iterable

from inference.contract.frames import Job, Output, Report
from inference.engines.base import JobRefused
from inference.node.options import REPORT_REPEAT_S, REPORTS_HELD_MAX


class HeldJob:
    """A job in the engine. `connected` turns False when its link is lost: nobody reads it then.

    `settled` is set when the gateway has charged it before its end, as after a stop string.
    `delivered`: some of its answer is out, or a choice has ended, so nobody can start it anew
    unseen.
    """

    __slots__ = ("choices_open", "connected", "delivered", "model", "owner", "settled")

    def __init__(self, job: Job, owner: str) -> None:
        self.owner = owner
        self.model = job.model
        self.choices_open = job.sampling.n
        self.connected = True
        self.delivered = False
        self.settled = False


class HeldReport:
    """A report and when it is to be sent next."""

    __slots__ = ("due_s", "owner", "report")

    def __init__(self, owner: str, report: Report, due_s: float) -> None:
        self.owner = owner
        self.report = report
        self.due_s = due_s


class JobTable:
    """All jobs in the engine and all reports not acknowledged; `owner` is a gateway's URL."""

    def __init__(self, *, reports_max: int = REPORTS_HELD_MAX) -> None:
        self._reports_max = reports_max
        self._jobs: dict[bytes, HeldJob] = {}
        self._reports: dict[bytes, HeldReport] = {}

    @property
    def jobs_count(self) -> int:
        """Jobs in the engine."""
        return len(self._jobs)

    @property
    def reports_count(self) -> int:
        """Reports that no gateway has acknowledged."""
        return len(self._reports)

    def accept(self, job: Job, owner: str) -> None:
        """Take a job in; raises `JobRefused`."""
        if job.request in self._jobs or job.request in self._reports:
            raise JobRefused("bad_job", "request: this node has had it already")
        if len(self._jobs) + len(self._reports) >= self._reports_max:
            # Each job ends in a report, so the bound must leave room for those running.
            raise JobRefused("full", f"{self._reports_max} reports wait for acknowledgement")
        self._jobs[job.request] = HeldJob(job, owner)

    def discard(self, request: bytes) -> str | None:
        """The engine refused it; returns whom to tell, None when nobody is there any more."""
        held = self._jobs.pop(request, None)
        return held.owner if held is not None and held.connected else None

    def untouched(self) -> list[bytes]:
        """Jobs of which nothing was delivered: another node can start them anew."""
        return [request for request, held in self._jobs.items() if not held.delivered]

    def owned_by(self, request: bytes, owner: str) -> bool:
        """The job is in the engine for this gateway."""
        held = self._jobs.get(request)
        return held is not None and held.owner == owner

    def requests(self) -> list[bytes]:
        """All jobs in the engine."""
        return list(self._jobs)

    def split(self, outputs: Iterable[Output], now_s: float) -> dict[str, list[Output]]:
        """Outputs by connected owner; a request's last output leaves a report behind."""
        groups: dict[str, list[Output]] = {}
        for output in outputs:
            held = self._jobs.get(output.request)
            if held is None:
                continue
            if output.delivered or output.finish is not None:
                held.delivered = True
            if held.connected:
                groups.setdefault(held.owner, []).append(output)
            if output.finish is not None:
                self._finish(held, output, now_s)
        return groups

    def disconnect(self, owner: str) -> list[bytes]:
        """The link is lost: returns the jobs to cancel, whose outputs nobody gets."""
        lost = [request for request, held in self._jobs.items() if held.owner == owner]
        for request in lost:
            self._jobs[request].connected = False
        return lost

    def connect(self, owner: str) -> None:
        """The link is back: its reports are due at once."""
        for held in self._reports.values():
            if held.owner == owner:
                held.due_s = 0.0

    def due_reports(self, owner: str, now_s: float) -> list[Report]:
        """Reports to send now; each comes again until it is acknowledged."""
        due = [
            held for held in self._reports.values() if held.owner == owner and held.due_s <= now_s
        ]
        for held in due:
            held.due_s = now_s + REPORT_REPEAT_S
        return [held.report for held in due]

    def acknowledge(self, requests: Iterable[bytes], owner: str) -> None:
        """Forget reports whose charge is on the ledger, and keep none for jobs still running."""
        for request in requests:
            held = self._reports.get(request)
            if held is not None and held.owner == owner:
                del self._reports[request]
            elif self.owned_by(request, owner):
                self._jobs[request].settled = True

    def _finish(self, held: HeldJob, output: Output, now_s: float) -> None:
        held.choices_open -= 1
        if held.choices_open:
            return
        del self._jobs[output.request]
        if held.settled:
            return
        report = Report(
            request=output.request,
            model=held.model,
            usage=output.usage,
            timing=output.timing,
            finish=output.finish or "",
        )
        # The last output carries the same figures, so a connected gateway needs no second frame
        # unless it fails to acknowledge.
        self._reports[output.request] = HeldReport(held.owner, report, now_s + REPORT_REPEAT_S)
