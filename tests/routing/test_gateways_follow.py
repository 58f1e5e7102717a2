"""Gateways follow each step of a version's life within two seconds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from django.conf import settings

from controlplane.bridge.session import conninfo_from
from controlplane.bridge.snapshot import SnapshotSource
from controlplane.core.audit import OPERATOR
from controlplane.routing.services import (
    ruleset_canary_promote,
    ruleset_canary_start,
    ruleset_canary_stop,
    ruleset_draft_create,
    ruleset_rollback,
)
from tests.support.orm import orm, seen_after_s
from tests.support.rules import generates, make_models, publish

FOLLOWED_S_MAX = 2.0
TO_SMALL = generates("all", "small")
TO_SMALL_TOO = generates("b", "small")
TO_LARGE = generates("all", "large", aliases=["small", "large"])


@pytest.fixture
async def source(database: str) -> AsyncIterator[SnapshotSource]:
    made = SnapshotSource(conninfo_from(settings.DATABASES["gateway"]), salt_secret=b"s" * 32)
    made.start()
    await made.wait_loaded(5)
    yield made
    await made.close()


async def followed(seen: Callable[[], bool]) -> None:
    """The gateway has it within the documented time from the end of the change on."""

    async def look() -> bool:
        return seen()

    assert await seen_after_s(look) < FOLLOWED_S_MAX


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
    draft = await orm(ruleset_draft_create)(
        actor=OPERATOR, rules=[TO_LARGE, TO_SMALL | {"name": "b"}]
    )
    start = orm(ruleset_canary_start)
    await start(actor=OPERATOR, rule_set=draft, share_permille=100)
    await followed(lambda: trial() == (["all@2", "b@2"], 100))
    await start(actor=OPERATOR, rule_set=draft, share_permille=250)
    await followed(lambda: trial() == (["all@2", "b@2"], 250))
    assert labels() == ["all@1"]
    await orm(ruleset_canary_promote)(actor=OPERATOR, rule_set=draft)
    await followed(lambda: labels() == ["all@2", "b@2"] and trial() is None)
    assert source.current.rules[0].match.aliases == {"small", "large"}
    empty = await orm(ruleset_draft_create)(actor=OPERATOR, rules=[])
    await start(actor=OPERATOR, rule_set=empty, share_permille=1)
    await followed(lambda: trial() == ([], 1))
    await orm(ruleset_canary_stop)(actor=OPERATOR, rule_set=empty)
    await followed(lambda: trial() is None)
    await orm(ruleset_rollback)(actor=OPERATOR)
    await followed(lambda: labels() == ["all@4"])
