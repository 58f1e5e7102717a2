"""One suite for the Contents port: on PostgreSQL, and in memory as tests of the gateway use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

import msgspec
import pytest

from controlplane.bridge.contents.store import PostgresContents
from controlplane.contents.services import Keeping, contents_configure
from controlplane.gateway.ports_contents import Contents, ContentsAway
from controlplane.gateway.snapshot import ProjectRecord
from controlplane.kernel.contents.kept import KeptContent
from tests.support.money import dsn
from tests.support.orm import orm
from tests.support.people import make_cast
from tests.support.ports import MemoryContents
from tests.support.said import make_content
from tests.support.waiting import until

DAYS = 7


class Store(Protocol):
    """What is kept, and how to make content of a project that keeps it."""

    contents: Contents

    def make(self, **changes: object) -> KeptContent: ...

    async def written(self) -> None:
        """Wait until all that was queued is kept."""


class Memory:
    """That of the fake."""

    def __init__(self) -> None:
        self.contents: Contents = MemoryContents()

    def make(self, **changes: object) -> KeptContent:
        return make_content(**changes)

    async def written(self) -> None:
        return


class Stored:
    """That of PostgreSQL, with a project that keeps for some days."""

    def __init__(self, real: PostgresContents, project: ProjectRecord) -> None:
        self.contents: Contents = real
        self._real = real
        self._project = project

    def make(self, **changes: object) -> KeptContent:
        owners = {"organization": self._project.organization, "project": self._project.id}
        return make_content(**{**owners, **changes})

    async def written(self) -> None:
        assert await self._real.flush()


@orm
def keeping_project() -> ProjectRecord:
    cast = make_cast()
    kept = contents_configure(
        actor=cast.alice, project=cast.project, keeping=Keeping(DAYS, ["owner"])
    )
    assert kept.content_key is not None
    return ProjectRecord(
        id=kept.id.hex,
        organization=cast.acme.id.hex,
        safety="off",
        salt=b"",
        keeps_days=DAYS,
        content_key=kept.content_key.hex(),
    )


@pytest.fixture
async def store(kind: str) -> AsyncIterator[Store]:
    if kind == "memory":
        yield Memory()
        return
    project = await keeping_project()
    made = PostgresContents(dsn(), lambda: {project.id: project})
    made.start()
    await until(lambda: made._connection is not None)
    yield Stored(made, project)
    await made.close()


@pytest.fixture
def contents(store: Store) -> Contents:
    return store.contents


async def test_what_is_queued_is_kept_once(store: Store, contents: Contents) -> None:
    first, second = store.make(), store.make()
    for content in (first, second, first):
        contents.keep(content)
    await store.written()
    for content in (first, second):
        assert await contents.read(content.project, content.request) == content


async def test_what_is_queued_replaces_nothing(store: Store, contents: Contents) -> None:
    content = store.make()
    await contents.keep_now(content)
    contents.keep(store.make(request=content.request, choices=()))
    await store.written()
    assert await contents.read(content.project, content.request) == content


async def test_what_is_kept_is_read_again_as_it_was(store: Store, contents: Contents) -> None:
    content = store.make(response=b'{"object":"response"}', status="incomplete", truncated=True)
    await contents.keep_now(content)
    assert await contents.read(content.project, content.request) == content


async def test_only_the_newest_of_a_request_is_kept(store: Store, contents: Contents) -> None:
    content = store.make(status="in_progress", choices=())
    await contents.keep_now(content)
    done = store.make(request=content.request, started_us=content.started_us)
    await contents.keep_now(done)
    assert await contents.read(content.project, content.request) == done


async def test_what_is_in_progress_ends_once(store: Store, contents: Contents) -> None:
    content = store.make(status="in_progress", choices=())
    told = {"request": content.request, "started_us": content.started_us}
    ends = [store.make(status=status, **told) for status in ("completed", "cancelled", "failed")]
    assert not await contents.keep_end(ends[0])
    await contents.keep_now(content)
    other = msgspec.structs.replace(ends[0], project="0" * 32)
    assert not await contents.keep_end(other)
    kept = await asyncio.gather(*map(contents.keep_end, ends))
    assert sum(kept) == 1
    assert await contents.read(content.project, content.request) == ends[kept.index(True)]
    assert not await contents.keep_end(ends[kept.index(False)])
    await contents.delete(content.project, content.request)
    assert not await contents.keep_end(ends[0])


async def test_another_project_reads_and_deletes_nothing(store: Store, contents: Contents) -> None:
    content = store.make()
    await contents.keep_now(content)
    other = "0" * 32
    assert await contents.read(other, content.request) is None
    assert not await contents.delete(other, content.request)
    assert await contents.read(content.project, content.request) == content


async def test_what_is_deleted_is_gone(store: Store, contents: Contents) -> None:
    content = store.make()
    await contents.keep_now(content)
    assert await contents.delete(content.project, content.request)
    assert not await contents.delete(content.project, content.request)
    assert await contents.read(content.project, content.request) is None


async def test_who_is_away_says_so(kind: str) -> None:
    away: Contents = (
        MemoryContents(away=True) if kind == "memory" else PostgresContents("host=/nowhere", dict)
    )
    content = make_content()
    away.keep(content)
    for asked in (
        away.keep_now(content),
        *([away.keep_end(content)] if kind == "memory" else []),
        away.read(content.project, content.request),
        away.delete(content.project, content.request),
    ):
        with pytest.raises(ContentsAway):
            await asked
