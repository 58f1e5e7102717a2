"""One suite for the Safety port: on the classifier's process, and on the fake of gateway tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.bridge.safety import client
from controlplane.gateway.ports import Safety
from tests.support.classifier import FINE, FOUL, START_S_MAX, classifier
from tests.support.ports import WordSafety


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.processes)])
async def safety(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Safety]:
    if request.param == "memory":
        yield WordSafety()
        return
    # As long as a busy machine takes: what is asked here is the score.
    async with classifier(tmp_path) as made:
        made.score_s = START_S_MAX
        yield made


async def test_scores_part_the_foul_from_the_fine_each_for_its_own_asker(safety: Safety) -> None:
    texts = [FINE, FOUL] * 4
    scores = await asyncio.gather(*(safety.score(text) for text in texts))
    assert [score > 0.5 for score in scores] == [False, True] * 4
    assert await safety.score(FOUL) == scores[1], "the same text has the same score"
    for text in ("", "é" * client.TEXT_BYTES_MAX, "\x00\n" * 100, FOUL * 1_000):
        assert 0.0 <= await safety.score(text) <= 1.0


@pytest.mark.parametrize("real", [True, False], ids=["process", "memory"])
async def test_a_score_that_does_not_come_is_a_timeout(
    real: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    safety: Safety = WordSafety(away=True)
    if real:
        absent = client.SafetyClient(tmp_path / "nobody.sock")
        monkeypatch.setattr(absent, "start_process", lambda: None)
        safety = absent
    with pytest.raises(TimeoutError):
        await safety.score(FINE)
