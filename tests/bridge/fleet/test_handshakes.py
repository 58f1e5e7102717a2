"""Handshakes of nodes: what a flood of unknown credentials costs, and that it keeps nobody out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from django.conf import settings
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from controlplane.bridge.fleet import handshakes
from controlplane.bridge.fleet.handshakes import ADDRESS_ASKING_MAX, Handshakes, TooManyHandshakes
from controlplane.bridge.fleet.store import FleetStore
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.database_roles import conninfo_of
from controlplane.fleet.services import node_credential_create, node_credential_revoke
from controlplane.gateway.ports import LedgerAway, NodeIdentity
from controlplane.kernel.keys.format import NODE_PREFIX, new_credential
from tests.support.fleet import CREDENTIAL, WAIT_S, FleetServer, MemoryPort, World, fleet_server
from tests.support.orm import orm
from tests.support.waiting import until

PROXY = "127.0.0.1"
FLOODER, HONEST = "192.0.2.1", "192.0.2.2"
FLOOD = 200
AT_ONCE = 60
NODES = 500


@dataclass
class SlowPort(MemoryPort):
    """Answers once `go` is set; `asked` is who was asked for, in order."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[str] = field(default_factory=list)

    async def authenticate(self, credential: str) -> NodeIdentity | None:
        self.asked.append(credential)
        await self.go.wait()
        return await super().authenticate(credential)


class Dials:
    """Handshakes that go on beside each other."""

    def __init__(self, trusted: tuple[str, ...] = ()) -> None:
        self.port = SlowPort()
        self.counted = Handshakes(trusted)
        self.tasks: list[asyncio.Task[NodeIdentity | None]] = []

    def dial(self, credential: str, peer: str, forwarded: str = "") -> None:
        headers = [(b"x-forwarded-for", forwarded.encode())]
        asked = self.counted.identify(self.port, credential, peer=peer, headers=headers)
        self.tasks.append(asyncio.create_task(asked))

    async def ends(self) -> list[NodeIdentity | BaseException | None]:
        self.port.go.set()
        found = await asyncio.gather(*self.tasks, return_exceptions=True)
        assert not self.counted._waiting and not self.counted._asking
        assert self.counted._waiting_count == 0
        return found


@pytest.fixture
async def store(database: str) -> AsyncIterator[FleetStore]:
    made = FleetStore(conninfo_of(settings.DATABASES["gateway"]), pepper=settings.KEY_PEPPER)
    made.start()
    await until(lambda: made._connection is not None)
    yield made
    await made.close()


async def dial(server: FleetServer, credential: str, address: str) -> tuple[int, str | None]:
    """The status of one handshake of an address behind the proxy, and when to come back."""
    headers = {"Authorization": f"Bearer {credential}", "X-Forwarded-For": address}
    try:
        async with connect(server.url, additional_headers=headers, proxy=None, open_timeout=WAIT_S):
            return 101, None
    except InvalidStatus as refused:
        return refused.response.status_code, refused.response.headers.get("retry-after")


async def flood(server: FleetServer) -> list[int]:
    """Unknown credentials of one address, many at a time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one() -> int:
        async with room:
            return (await dial(server, new_credential(NODE_PREFIX).text, FLOODER))[0]

    return list(await asyncio.gather(*(one() for _ in range(FLOOD))))


async def test_a_flood_keeps_no_node_out_not_even_one_of_its_own_address(
    store: FleetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = [
        await orm(node_credential_create)(actor=OPERATOR, name=name, pool="default")
        for name in ("own", "other")
    ]
    world = World()
    monkeypatch.setattr(world, "fleet_port", store)
    world.handshakes = Handshakes((PROXY,))
    asked: list[int] = []
    ask = store._valid

    async def counted(key_ids: list[str]) -> object:
        asked.append(len(key_ids))
        return await ask(key_ids)

    monkeypatch.setattr(store, "_valid", counted)
    async with fleet_server(world) as server:
        flooding = asyncio.create_task(flood(server))
        await until(lambda: sum(asked) > FLOOD / 2)
        # This process has never seen either of them.
        assert await dial(server, own.secret, FLOODER) == (101, None)
        assert await dial(server, other.secret, HONEST) == (101, None)
        assert await flooding == [401] * FLOOD
        assert world.handshakes.refused_total == 0
        await orm(node_credential_revoke)(actor=OPERATOR, credential=own.credential)
        assert await dial(server, own.secret, FLOODER) == (401, None)


async def test_all_nodes_of_an_address_get_in_after_a_restart() -> None:
    dials = Dials()
    known = dials.port.identities[CREDENTIAL]
    for number in range(NODES):
        dials.port.identities[f"credential-{number}"] = known
        dials.dial(f"credential-{number}", FLOODER)
    await until(lambda: len(dials.port.asked) == ADDRESS_ASKING_MAX)
    assert await dials.ends() == [known] * NODES


async def test_addresses_take_turns_and_those_of_one_have_a_bound_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshakes, "ADDRESS_ASKING_MAX", 2)
    monkeypatch.setattr(handshakes, "ASKING_MAX", 3)
    dials = Dials()
    for number in range(5):
        dials.dial(f"many-{number}", FLOODER)
    dials.dial("one", HONEST)
    await until(lambda: len(dials.port.asked) == 3)
    assert dials.port.asked == ["many-0", "many-1", "one"]
    dials.dial("other", "192.0.2.3")
    assert await dials.ends() == [None] * 7
    assert dials.port.asked.index("other") <= 5


async def test_what_finds_no_room_to_wait_is_refused_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshakes, "ADDRESS_ASKING_MAX", 1)
    monkeypatch.setattr(handshakes, "ADDRESS_WAITING_MAX", 2)
    monkeypatch.setattr(handshakes, "WAITING_MAX", 3)
    dials = Dials()
    for _ in range(4):
        dials.dial("unknown", FLOODER)
    await until(lambda: dials.port.asked)
    for _ in range(3):
        dials.dial("unknown", HONEST)
    await until(lambda: len(dials.port.asked) == 2)
    ends = [type(end) for end in await dials.ends()]
    none = type(None)
    assert ends[:4] == [none, none, none, TooManyHandshakes]
    assert sorted(each.__name__ for each in ends[4:]) == ["LedgerAway", "LedgerAway", "NoneType"]
    assert dials.counted.refused_total == 3


async def test_whoever_gives_up_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "ADDRESS_ASKING_MAX", 1)
    dials = Dials()
    for name in ("asked", "waiting", "last"):
        dials.dial(name, FLOODER)
    await until(lambda: dials.port.asked)
    for task in dials.tasks[:2]:
        task.cancel()
    ends = await dials.ends()
    assert [type(end) for end in ends[:2]] == [asyncio.CancelledError] * 2
    assert dials.port.asked == ["asked", "last"]


async def test_a_known_credential_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "ADDRESS_WAITING_MAX", 1)
    monkeypatch.setattr(handshakes, "ADDRESS_ASKING_MAX", 1)
    port, counted = MemoryPort(), Handshakes()
    assert await counted.identify(port, CREDENTIAL, peer=FLOODER, headers=[]) is not None
    monkeypatch.setattr(handshakes, "ADDRESS_WAITING_MAX", 0)
    with pytest.raises(TooManyHandshakes):
        await counted.identify(port, "unknown", peer=FLOODER, headers=[])
    assert await counted.identify(port, CREDENTIAL, peer=FLOODER, headers=[]) is not None
    # Once it is refused it is one as any other.
    port.revoked.add(port.identities[CREDENTIAL].id)
    assert await counted.identify(port, CREDENTIAL, peer=FLOODER, headers=[]) is None
    with pytest.raises(TooManyHandshakes):
        await counted.identify(port, CREDENTIAL, peer=FLOODER, headers=[])


@pytest.mark.parametrize(("bound", "status"), [("ADDRESS_WAITING_MAX", 429), ("WAITING_MAX", 503)])
async def test_a_node_that_is_refused_is_told_when_to_come_back(
    bound: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, bound, 0)
    async with fleet_server(World()) as server:
        assert await dial(server, CREDENTIAL, FLOODER) == (status, "1")


async def test_a_question_that_fails_gives_its_turn_back() -> None:
    dials = Dials()
    dials.port.away = True
    for _ in range(2 * ADDRESS_ASKING_MAX):
        dials.dial("unknown", FLOODER)
    assert {type(end) for end in await dials.ends()} == {LedgerAway}


@pytest.mark.parametrize(
    ("peers", "forwarded", "one"),
    [
        # What nobody trusted forwards is not believed; a /64 network is one address.
        ([FLOODER, FLOODER], ["1.1.1.1", "2.2.2.2"], True),
        (["2001:db8::1", "2001:db8::2"], ["", ""], True),
        ([FLOODER, HONEST], ["", ""], False),
        ([PROXY, PROXY], [FLOODER, HONEST], False),
        ([PROXY, PROXY], ["x" * 60_000, "y" * 60_000], True),
    ],
)
async def test_what_counts_as_one_address(
    peers: list[str], forwarded: list[str], one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "ADDRESS_ASKING_MAX", 1)
    monkeypatch.setattr(handshakes, "ADDRESS_WAITING_MAX", 1)
    dials = Dials((PROXY,))
    for place in (0, 0, 1):
        dials.dial("unknown", peers[place], forwarded[place])
    await until(lambda: dials.port.asked and (one or len(dials.port.asked) == 2))
    *_, last = await dials.ends()
    assert isinstance(last, TooManyHandshakes) if one else last is None


async def test_credentials_that_are_remembered_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshakes, "CREDENTIALS_MAX", 2)
    port, counted = MemoryPort(), Handshakes()
    for number in range(5):
        port.identities[f"credential-{number}"] = port.identities[CREDENTIAL]
        await counted.identify(port, f"credential-{number}", peer=FLOODER, headers=[])
    assert len(counted._known) == 2
