"""Ending tasks, also those whose library loses a cancellation."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.kernel import tasks


async def test_what_loses_a_cancellation_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "CANCEL_AGAIN_S", 0.01)
    lost: list[bool] = []

    async def deaf() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if lost:
                    raise
                lost.append(True)

    task = asyncio.create_task(deaf())
    await asyncio.sleep(0)
    await tasks.end(task)
    assert task.cancelled() and lost


async def test_a_failure_of_its_own_is_an_end_too() -> None:
    async def broken() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("no connection")

    task = asyncio.create_task(broken())
    await asyncio.sleep(0)
    await tasks.end(task)
    assert isinstance(task.exception(), OSError)
    await tasks.end(task)
    await tasks.end(None)
