"""One suite for the Hygiene port: on PostgreSQL, and in memory as tests of the gateway use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Protocol

import pytest

from controlplane.bridge.record.hygiene import PostgresHygiene
from controlplane.gateway.ports import Hygiene, Inspected
from controlplane.kernel.insights.hygiene import DEAD_JSON, KINDS, RETRY, WasteFinding
from tests.support.money import ALICE_KEY, BOB_KEY, ORG_A, PROJECT_A, dsn, rows
from tests.support.ports import MemoryHygiene

# By key and kind: requests, tokens and nano-USD. A request itself is of the kind "looked", or
# "left_out" where the sample left it out.
Counts = dict[tuple[str, str], tuple[int, int, int]]


class Store(Protocol):
    """A port, and what it has counted."""

    @property
    def port(self) -> Hygiene: ...

    async def counts(self) -> Counts: ...


def summed(parts: Iterable[tuple[str, str, int, int, int]]) -> Counts:
    counts: Counts = {}
    for key, kind, requests, tokens, nano in parts:
        before = counts.get((key, kind), (0, 0, 0))
        counts[key, kind] = before[0] + requests, before[1] + tokens, before[2] + nano
    return counts


class Memory:
    """That of the fake."""

    def __init__(self) -> None:
        self._memory = MemoryHygiene()
        self.port: Hygiene = self._memory

    async def counts(self) -> Counts:
        return summed(part for each in self._memory.seen for part in self._parts(each))

    def _parts(self, each: Inspected) -> Iterator[tuple[str, str, int, int, int]]:
        yield each.key, "looked" if each.looked else "left_out", 1, each.tokens, each.nano
        for finding in each.findings:
            yield each.key, finding.kind, 1, finding.tokens, finding.nano


class Stored:
    """That of PostgreSQL."""

    def __init__(self, port: PostgresHygiene) -> None:
        self._real = port
        self.port: Hygiene = port

    async def counts(self) -> Counts:
        assert await self._real.flush()
        found = rows("SELECT key, kind, requests, tokens, nano FROM hygiene_hours")
        return summed((key.hex, *more) for key, *more in found)


@pytest.fixture
async def store(kind: str) -> AsyncIterator[Store]:
    if kind == "memory":
        yield Memory()
        return
    made = PostgresHygiene(dsn())
    made.start()
    yield Stored(made)
    await made.close()


def seen(
    key: str = ALICE_KEY.hex, *, looked: bool = True, findings: tuple[WasteFinding, ...] = ()
) -> Inspected:
    """A served request of 100 tokens for 1,000 nano-USD."""
    return Inspected(
        organization=ORG_A.hex,
        project=PROJECT_A.hex,
        key=key,
        client="curl",
        model='odd "name", {really}',
        tokens=100,
        nano=1_000,
        looked=looked,
        findings=findings,
    )


async def test_every_request_is_counted_once_for_its_key(store: Store) -> None:
    assert await store.counts() == {}
    for request in (seen(), seen(), seen(BOB_KEY.hex), seen(looked=False)):
        store.port.count(request)
    assert await store.counts() == {
        (ALICE_KEY.hex, "looked"): (2, 200, 2_000),
        (BOB_KEY.hex, "looked"): (1, 100, 1_000),
        (ALICE_KEY.hex, "left_out"): (1, 100, 1_000),
    }


async def test_findings_are_summed_by_kind(store: Store) -> None:
    store.port.count(seen(findings=(WasteFinding(DEAD_JSON, 7, 70),)))
    store.port.count(
        seen(findings=(WasteFinding(DEAD_JSON, 3, 30), WasteFinding(RETRY, 100, 1_000)))
    )
    assert await store.counts() == {
        (ALICE_KEY.hex, "looked"): (2, 200, 2_000),
        (ALICE_KEY.hex, DEAD_JSON): (2, 10, 100),
        (ALICE_KEY.hex, RETRY): (1, 100, 1_000),
    }


async def test_every_kind_can_be_counted(store: Store) -> None:
    store.port.count(seen(findings=tuple(WasteFinding(kind, 1, 1) for kind in KINDS)))
    counts = await store.counts()
    assert {kind: counts[ALICE_KEY.hex, kind] for kind in KINDS} == dict.fromkeys(KINDS, (1, 1, 1))


@pytest.mark.parametrize("real", [True, False], ids=["postgresql", "memory"])
async def test_counting_never_raises(real: bool) -> None:
    port: Hygiene = PostgresHygiene("host=/nowhere") if real else MemoryHygiene()
    for _ in range(3):
        port.count(seen())
