"""Models of a host: what it is told to take is checked, and what nobody uses is deleted."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from inference.agent import models
from inference.agent.models import HostModels, SourceRefused
from inference.contract.hosts import ModelSource

COMMITS = [letter * 40 for letter in "abcd"]


@pytest.mark.parametrize(
    ("source", "field"),
    [
        (ModelSource("hub", "../secrets"), "name"),
        (ModelSource("hub", "owner/../x"), "name"),
        (ModelSource("hub", "owner/m", "../../x"), "revision"),
        (ModelSource("hub", "owner/m", "--force"), "revision"),
        (ModelSource("folder", "models/m"), "name"),
        (ModelSource("folder", "/models/m", "main"), "revision"),
    ],
)
def test_a_source_that_cannot_be_one_is_refused_by_its_field(
    tmp_path: Path, source: ModelSource, field: str
) -> None:
    here = HostModels(tmp_path, [tmp_path])
    for ask in (here.look, here.fetch):
        with pytest.raises(SourceRefused) as refused:
            ask(source)
        assert refused.value.field == field
    assert here.size(source).error.startswith(f"source.{field}: Must be ")


def _keep(hub: Path, repository: str, commit: str, age: int) -> Path:
    """A revision as the hub's client leaves it."""
    home = hub / f"models--owner--{repository}"
    snapshot, blob = home / "snapshots" / commit, home / "blobs" / commit
    snapshot.mkdir(parents=True)
    blob.parent.mkdir(exist_ok=True)
    blob.write_bytes(b"weights")
    (snapshot / "model.safetensors").symlink_to(blob)
    os.utime(blob, (1_000 - age, 1_000 - age))
    return blob


def test_revisions_that_no_replica_uses_are_deleted_but_for_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "UNUSED_REVISIONS_MAX", 1)
    here = HostModels(tmp_path, [])
    here.prune(set)
    repositories = ("one", "one", "two", "one")
    blobs = [
        _keep(tmp_path / "hub", repository, commit, age)
        for age, (repository, commit) in enumerate(zip(repositories, COMMITS, strict=True))
    ]
    here.prune(lambda: {COMMITS[3]})
    assert [blob.exists() for blob in blobs] == [True, False, False, True]
    assert [path.name for path in (tmp_path / "hub").iterdir() if path.name[0] != "."] == [
        "models--owner--one"
    ]


def test_one_repository_is_fetched_once_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[str] = []
    peaks: list[int] = []

    def download(name: str, **_: Any) -> str:
        running.append(name)
        peaks.append(running.count(name))
        time.sleep(0.05)
        running.remove(name)
        return str(tmp_path)

    monkeypatch.setattr(models, "snapshot_download", download)
    here = HostModels(tmp_path, [])
    source = ModelSource("hub", "owner/m", COMMITS[0])
    threads = [threading.Thread(target=here.fetch, args=(source,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert peaks == [1, 1, 1]
