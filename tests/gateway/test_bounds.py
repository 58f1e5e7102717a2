"""`within` against what `asyncio.timeout` promises."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.gateway.bounds import within


async def test_result_passes_through() -> None:
    assert await within(1.0, asyncio.sleep(0, "done")) == "done"


async def test_late_work_is_cancelled_and_said() -> None:
    never = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError):
        await within(0.01, never)
    assert never.cancelled()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    task = asyncio.create_task(within(5.0, asyncio.sleep(5)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_errors_pass_through_and_the_timer_ends() -> None:
    async def fail() -> None:
        raise KeyError("here")

    with pytest.raises(KeyError):
        await within(0.01, fail())
    await asyncio.sleep(0.03)
