"""What each gateway is told of the load: its own jobs by name, those of others as sums."""

from __future__ import annotations

import msgspec

from inference.contract.frames import Processing
from inference.node.jobs import JobTable
from inference.node.load import Load
from tests.support.fleet import make_job, make_step


def test_only_the_owner_hears_which_of_its_jobs_a_server_processes() -> None:
    table = JobTable()
    load = Load(table)
    jobs = {owner: make_job(request_json=b"{}") for owner in ("ws://a", "ws://b")}
    for owner, job in jobs.items():
        table.accept(job, owner, owner)
    probe = make_job()
    named = [Processing(request=job.request, silent_ms=7) for job in (*jobs.values(), probe)]
    step = msgspec.structs.replace(make_step(), processing=named)
    load.stepped(step)
    for place, owner in enumerate(jobs):
        assert load.for_gateway(step, owner).processing == [named[place]]
    between = load.between_steps()
    assert between is not None and between.processing == []


def test_all_hear_that_a_step_computes_also_for_a_job_that_nobody_reads() -> None:
    table = JobTable()
    load = Load(table)
    job = make_job()
    table.accept(job, "ws://a", "a")
    load.stepped(make_step())
    for owned in (True, False):
        step = load.between_steps([Processing(request=job.request, silent_ms=7)])
        assert step is not None and step.step_us == 0
        for url in ("ws://a", "ws://b"):
            told = load.for_gateway(step, url)
            assert told.computing_ms == 7
            assert bool(told.processing) == (owned and url == "ws://a")
        table.disconnect("ws://a")
    between = load.between_steps()
    assert between is not None and between.computing_ms == 0
