"""Gateways follow each step of a version's life within two seconds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from django.conf import settings

from controlplane.bridge.configuration.snapshot import SnapshotSource
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.database_roles import conninfo_of
from controlplane.routing.services import RuleVersions
from tests.support.orm import orm
from tests.support.rules import generates, make_models, publish
from tests.support.waiting import until

FOLLOWED_S_MAX = 2.0
TO_SMALL = generates("all", "small")
TO_SMALL_TOO = generates("b", "small")
TO_LARGE = generates("all", "large", aliases=["small", "large"])


@pytest.fixture
async def source(database: str) -> AsyncIterator[SnapshotSource]:
    made = SnapshotSource(conninfo_of(settings.DATABASES["gateway"]), salt_secret=b"s" * 32)
    made.start()
    await made.wait_loaded(5)
    yield made
    await made.close()


async def followed(seen: Callable[[], bool]) -> None:
    """The gateway has it within the documented time from the end of the change on."""

    async def look() -> bool:
        return seen()

    assert await until(look) < FOLLOWED_S_MAX


async def test_every_step_is_followed_within_two_seconds(source: SnapshotSource) -> None:
    def labels() -> list[str]:
        return [rule.label for rule in source.current.rules]

    def trial() -> tuple[list[str], int] | None:
        found = source.current.candidate
        return None if found is None else ([one.label for one in found.rules], found.share_permille)

    await orm(make_models)("small", "large")
    assert labels() == [] and trial() is None
    await orm(publish)(TO_SMALL)
    await followed(lambda: labels() == ["all@1"])
    versions = RuleVersions(OPERATOR)
    draft = await orm(versions.draft_create)([TO_LARGE, TO_SMALL | {"name": "b"}])
    start = orm(versions.canary_start)
    await start(draft, share_permille=100)
    await followed(lambda: trial() == (["all@2", "b@2"], 100))
    await start(draft, share_permille=250)
    await followed(lambda: trial() == (["all@2", "b@2"], 250))
    assert labels() == ["all@1"]
    await orm(versions.canary_promote)(draft)
    await followed(lambda: labels() == ["all@2", "b@2"] and trial() is None)
    assert source.current.rules[0].match.aliases == {"small", "large"}
    empty = await orm(versions.draft_create)([])
    await start(empty, share_permille=1)
    await followed(lambda: trial() == ([], 1))
    await orm(versions.canary_stop)(empty)
    await followed(lambda: trial() is None)
    await orm(versions.rollback)()
    await followed(lambda: labels() == ["all@4"])
