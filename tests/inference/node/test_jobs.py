"""The job table: owners, reports kept until acknowledged, and its bound."""

from __future__ import annotations

import msgspec
import pytest

from inference.contract.frames import Job
from inference.errors import JobRefused
from inference.node.jobs import LOST, JobTable
from inference.node.options import REPORT_REPEAT_S
from tests.support.fleet import make_job, make_output, make_usage

ALICE = "ws://alice/fleet"
BOB = "ws://bob/fleet"
# The processes behind these addresses.
A1 = "alice-1"
B1 = "bob-1"
PROCESSES = {ALICE: A1, BOB: B1}


def accepted(table: JobTable, owner: str, *, n: int = 1) -> Job:
    job = msgspec.structs.replace(make_job(n=n), ticket=b"ticket")
    table.accept(job, owner, PROCESSES[owner])
    return job


def finish(table: JobTable, job: Job, now_s: float = 0.0) -> None:
    table.split([make_output(job.request, finish="stop")], now_s)


def test_outputs_go_to_their_owner_only() -> None:
    table = JobTable()
    first, second = accepted(table, ALICE), accepted(table, BOB)
    outputs = [make_output(first.request), make_output(second.request), make_output(b"x" * 16)]
    groups = table.split(outputs, 0.0)
    assert groups == {ALICE: [outputs[0]], BOB: [outputs[1]]}
    assert table.owned_by(first.request, ALICE)
    assert not table.owned_by(first.request, BOB)


def test_a_report_carries_the_last_usage_of_all_choices() -> None:
    table = JobTable()
    job = accepted(table, ALICE, n=2)
    table.split([make_output(job.request, finish="stop")], 0.0)
    assert table.reports_count == 0
    last = make_output(job.request, choice=1, finish="length", usage=make_usage(completion=7))
    table.split([last], 0.0)
    assert table.jobs_count == 0
    (report,) = table.due_reports(A1, REPORT_REPEAT_S)
    assert (report.usage.completion_tokens, report.finish) == (7, "length")
    assert report.ticket == job.ticket == b"ticket"


def test_a_job_is_untouched_until_a_token_or_the_end_of_a_choice_is_out() -> None:
    table = JobTable()
    waiting, begun, half = (accepted(table, ALICE, n=2) for _ in range(3))
    outputs = [
        make_output(waiting.request, tokens=[]),
        make_output(begun.request),
        make_output(half.request, tokens=[], finish="stop"),
    ]
    table.split(outputs, 0.0)
    assert table.untouched() == [waiting.request]


def test_a_report_is_repeated_until_its_owner_acknowledges() -> None:
    table = JobTable()
    job = accepted(table, ALICE)
    finish(table, job)
    assert table.due_reports(A1, 0.0) == []
    assert len(table.due_reports(A1, REPORT_REPEAT_S)) == 1
    assert table.due_reports(A1, REPORT_REPEAT_S) == []
    assert len(table.due_reports(A1, 2 * REPORT_REPEAT_S)) == 1
    table.acknowledge([job.request], BOB, B1)
    assert table.reports_count == 1
    table.acknowledge([job.request, b"unknown"], ALICE, A1)
    assert table.reports_count == 0


def test_a_job_settled_before_its_end_leaves_no_report() -> None:
    table = JobTable()
    job = accepted(table, ALICE)
    table.acknowledge([job.request], BOB, B1)
    table.acknowledge([job.request], ALICE, A1)
    finish(table, job)
    assert (table.jobs_count, table.reports_count) == (0, 0)


def test_a_reconnect_makes_reports_due_at_once_and_hides_old_outputs() -> None:
    table = JobTable()
    job, other = accepted(table, ALICE), accepted(table, BOB)
    assert table.disconnect(ALICE) == [job.request]
    assert table.split([make_output(job.request, finish="cancelled")], 0.0) == {}
    assert table.due_reports(A1, 0.0) == []
    table.connect(A1)
    assert [report.request for report in table.due_reports(A1, 0.0)] == [job.request]
    assert table.requests() == [other.request]


def test_the_bound_refuses_jobs_rather_than_forget_reports() -> None:
    table = JobTable(reports_max=2)
    first = accepted(table, ALICE)
    finish(table, first)
    accepted(table, ALICE)
    with pytest.raises(JobRefused) as refused:
        table.accept(make_job(), ALICE, A1)
    assert refused.value.code == "full"
    table.acknowledge([first.request], ALICE, A1)
    accepted(table, ALICE)


def test_a_request_is_taken_once() -> None:
    table = JobTable()
    job = accepted(table, ALICE)
    for _ in range(2):
        with pytest.raises(JobRefused) as refused:
            table.accept(msgspec.structs.replace(job, deadline_ms=5), BOB, B1)
        assert refused.value.code == "bad_job"
        finish(table, job)
    table.acknowledge([job.request], ALICE, A1)
    table.accept(job, ALICE, A1)
    table.discard(job.request)
    assert table.jobs_count == 0


def test_a_dead_gateways_reports_go_to_any_other_one_at_a_time() -> None:
    table = JobTable()
    job = accepted(table, ALICE)
    table.disconnect(ALICE)
    finish(table, job)
    assert table.reporting() == {A1}
    assert table.due_reports(B1, 2 * REPORT_REPEAT_S) == []
    table.bequeath(A1)
    assert table.reporting() == set()
    assert [report.request for report in table.due_reports(B1, 0.0)] == [job.request]
    assert table.due_reports("carol-1", 0.0) == []
    assert len(table.due_reports("carol-1", REPORT_REPEAT_S)) == 1
    table.acknowledge([job.request], BOB, B1)
    assert table.reports_count == 0


def test_figures_by_owner_follow_every_way_a_job_can_go() -> None:
    table = JobTable()
    mine, theirs, refused = (accepted(table, owner) for owner in (ALICE, BOB, BOB))
    prompt = len(mine.tokens)
    assert table.held() == {ALICE: 1, BOB: 2}
    assert table.others(ALICE) == (2, 2 * prompt)
    assert table.others("ws://carol/fleet") == (3, 3 * prompt)
    table.discard(refused.request)
    assert table.others(ALICE) == (1, prompt)
    table.split([make_output(theirs.request)], 0.0)
    assert table.others(ALICE) == (1, 0)
    table.disconnect(ALICE)
    assert table.held() == {LOST: 1, BOB: 1}
    assert table.others(ALICE) == (2, prompt)
    for job in (mine, theirs):
        finish(table, job)
    assert (table.held(), table.others(ALICE), table.queued_tokens) == ({}, (0, 0), 0)
