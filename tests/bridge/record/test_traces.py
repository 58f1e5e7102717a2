"""Traces on their way out: bounded, counted, off the loop; and what a trace looks like."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace.status import StatusCode

from controlplane.bridge.record.otlp import make_export, spans_of
from controlplane.bridge.record.traces import BATCH_MAX, QUEUE_MAX, TraceQueue
from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.tracing import Trace, read_state
from tests.support.collector import running_collector
from tests.support.records import make_record
from tests.support.waiting import until

NOBODY = Resource({})


def traced(**changes: object) -> FinishedRequest:
    """A request whose trace is recorded."""
    record = make_record(**changes)
    trace = Trace(record.request, os.urandom(8), b"", sampled=True)
    return make_record(**{**changes, "request": record.request, "trace": trace})


async def test_batches_are_exported_on_another_thread_and_the_rest_at_the_end() -> None:
    sizes: list[int] = []

    def export(records: Sequence[FinishedRequest]) -> bool:
        assert threading.current_thread() is not threading.main_thread()
        sizes.append(len(records))
        return True

    queue = TraceQueue(export)
    queue.start()
    for _ in range(BATCH_MAX + 1):
        queue.take(make_record())
    await queue.close()
    assert sizes == [BATCH_MAX, 1]
    assert (queue.exported, queue.dropped) == (BATCH_MAX + 1, 0)


async def test_a_full_queue_drops_and_counts() -> None:
    queue = TraceQueue(lambda records: True)
    record = make_record()
    for _ in range(QUEUE_MAX + 3):
        queue.take(record)
    assert queue.dropped == 3


async def test_an_export_that_raises_is_counted_and_the_next_one_is_made() -> None:
    calls = 0

    def export(records: Sequence[FinishedRequest]) -> bool:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("no such header")
        return True

    queue = TraceQueue(export)
    queue.start()
    queue.take(make_record())
    await until(lambda: queue.dropped == 1)
    queue.take(make_record())
    await until(lambda: queue.exported == 1)
    await queue.close()


async def test_what_a_collector_does_not_take_is_counted() -> None:
    with running_collector() as collector:
        queue = TraceQueue(make_export(f"{collector.url}/v1/traces", "one"))
        collector.refuses = True
        queue.start()
        queue.take(traced())
        await until(lambda: queue.dropped == 1)
        collector.refuses = False
        queue.take(traced())
        await until(lambda: queue.exported == 1)
        await queue.close()
        assert collector.spans


def with_state(state: str) -> FinishedRequest:
    """A request whose caller sent this `tracestate`, as far as it was taken."""
    trace = Trace(os.urandom(16), os.urandom(8), os.urandom(8), sampled=True, state=state)
    return make_record(trace=trace)


def lines_of_the_library(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.message for one in caplog.records if one.name.startswith("opentelemetry")]


@pytest.mark.parametrize(
    "header",
    ["a=1,b@c=x y", "a", "A=1", "a=ä", "a=1,a=2", "a=1=2", ",".join(f"k{n}=1" for n in range(40))],
)
def test_no_state_of_a_caller_makes_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture, header: str
) -> None:
    state = read_state(header)
    assert [span.context.trace_state.to_header() for span in spans_of(with_state(state), NOBODY)]
    assert not lines_of_the_library(caplog)


def test_the_library_does_write_a_line_of_a_state_that_is_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert list(spans_of(with_state("a"), NOBODY))
    assert lines_of_the_library(caplog)


def test_a_failed_request_says_why() -> None:
    resource = Resource({})
    for status, code, state, kind in (
        (503, "server_is_overloaded", StatusCode.ERROR, "server_is_overloaded"),
        (429, "rate_limit_exceeded", StatusCode.UNSET, "rate_limit_exceeded"),
        (499, "", StatusCode.UNSET, "client_left"),
    ):
        root = next(spans_of(traced(status=status, error_code=code), resource))
        assert root.status.status_code is state
        assert root.attributes is not None and root.attributes["error.type"] == kind


def test_a_rules_name_is_what_was_asked_for() -> None:
    receipt = b'{"asked":"fast","before":[{"name":"tools","dur_ms":3.0}],"why":"x"}'
    root = next(spans_of(traced(receipt=receipt), Resource({})))
    assert root.attributes is not None
    assert root.name == "chat fast"
    assert root.attributes["gen_ai.response.model"] == "sluice-5m"
    assert root.attributes["sluice.client.tools.duration_ms"] == 3.0
