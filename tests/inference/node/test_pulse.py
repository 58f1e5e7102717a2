"""When a step is said to compute, and where its CPU time is read."""

from __future__ import annotations

import threading

import pytest

from inference.contract.frames import Processing
from inference.engines.base import Computing, thread_cpu_s
from inference.engines.echo import EchoEngine
from inference.node.load import COMPUTING_SHARE_MIN, PULSE_S, Pulse
from tests.support.fleet import WAIT_S

REQUEST = b"r" * 16
NOW_S = 1000.0


class Stepping(EchoEngine):
    """Only as far as its step goes."""

    def __init__(self) -> None:
        self.step: Computing | None = None

    def computing(self) -> Computing | None:  # type: ignore[override]
        """What the test says."""
        return self.step


@pytest.mark.parametrize(
    ("began_s", "share", "told"),
    [
        (NOW_S, 1.0, True),
        (NOW_S, COMPUTING_SHARE_MIN * 1.1, True),
        (NOW_S, COMPUTING_SHARE_MIN * 0.9, False),
        (NOW_S, 0.0, False),
        (NOW_S + 0.1, 1.0, False),
        (None, 1.0, False),
    ],
)
def test_a_step_is_told_while_it_lasts_and_computes(
    began_s: float | None, share: float, told: bool
) -> None:
    engine = Stepping()
    pulse = Pulse(engine)
    engine.step = Computing([REQUEST], NOW_S, lambda: 7.0)
    assert pulse.look(NOW_S + 1.0) == []
    if began_s is None:
        engine.step = None
    else:
        engine.step = Computing([REQUEST], began_s, lambda: 7.0 + share * PULSE_S)
    assert pulse.look(NOW_S + 1.0 + PULSE_S / 2) == []
    silent_ms = round((1.0 + PULSE_S) * 1000)
    expected = [Processing(request=REQUEST, silent_ms=silent_ms)] if told else []
    assert pulse.look(NOW_S + 1.0 + PULSE_S) == expected


def test_cpu_time_is_that_of_the_thread() -> None:
    ids: list[int] = []
    told, done = threading.Event(), threading.Event()

    def spin() -> None:
        ids.append(threading.get_native_id())
        while thread_cpu_s(ids[0]) < 0.1:
            pass
        told.set()
        done.wait(WAIT_S)

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        assert told.wait(WAIT_S)
        before_s = thread_cpu_s(ids[0])
        assert before_s >= 0.1
        assert done.wait(0.2) is False
        assert thread_cpu_s(ids[0]) - before_s < 0.1
    finally:
        done.set()
        thread.join()
    assert thread_cpu_s(0) == 0.0, "no thread has this number"
