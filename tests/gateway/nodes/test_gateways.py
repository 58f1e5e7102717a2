"""What a link does about the other gateways: credits that come and go, their list, their load."""

from __future__ import annotations

import msgspec
import pytest

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.limits import CREDITS_MAX
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.measured.account import NoCredit
from controlplane.gateway.nodes.models import NodeGroup
from controlplane.gateway.s2_balance.load import pick_region
from inference.contract.codec import decode_from_gateway, encode
from inference.contract.frames import (
    Credits,
    CreditsTaken,
    FromGateway,
    FromNode,
    Gateways,
    Welcome,
)
from inference.contract.places import GatewayAddress
from tests.support.fleet import QUICK, World, make_hello, make_job, make_step

LIVE = (GatewayAddress(instance="gateway-1", url="ws://one/fleet"),)


class Wire:
    """One link with what it sent."""

    def __init__(self, **hello: object) -> None:
        self.world = World(msgspec.structs.replace(QUICK, tick_s=3600.0))
        self.world.fleet.gateways = LIVE
        self.sent: list[FromGateway] = []
        self.freed: list[NodeLink] = []
        self.world.fleet.on_credit.append(self.freed.append)
        self.link = self.world.fleet.connect(
            self.world.fleet_port.identities["node_sluice_test"],
            send=lambda data: self.sent.append(decode_from_gateway(data)),
            close=lambda code, reason: None,
        )
        self.take(make_hello(**hello))

    def take(self, frame: FromNode) -> None:
        self.link.on_bytes(encode(frame))

    def dispatch(self) -> None:
        self.world.fleet.dispatch(self.link, make_job())


async def test_credits_follow_the_node_and_each_change_is_confirmed() -> None:
    wire = Wire(credits=2)
    wire.dispatch()
    wire.dispatch()
    wire.sent.clear()
    wire.take(Credits(number=1, credits=1))
    assert wire.sent == [CreditsTaken(number=1)]
    assert wire.link.account.credits_left == -1
    with pytest.raises(NoCredit):
        wire.dispatch()
    wire.take(Credits(number=2, credits=3))
    # Whoever waits for a credit hears of it.
    assert wire.freed[-1] is wire.link
    wire.dispatch()


async def test_a_node_whose_credits_others_hold_is_admitted_without() -> None:
    wire = Wire(credits=0)
    assert wire.link.takes_jobs
    with pytest.raises(NoCredit):
        wire.dispatch()


@pytest.mark.parametrize("credits", [-1, CREDITS_MAX + 1])
async def test_impossible_credits_are_a_strike_and_change_nothing(credits: int) -> None:
    wire = Wire(credits=2)
    wire.take(Credits(number=1, credits=credits))
    assert (wire.link._strikes, wire.link.account.credits) == (1, 2)


async def test_a_node_hears_of_all_gateways_at_its_welcome_and_of_every_change() -> None:
    wire = Wire()
    (welcome,) = [frame for frame in wire.sent if isinstance(frame, Welcome)]
    assert welcome.gateways == list(LIVE)
    more = (*LIVE, GatewayAddress(instance="gateway-2", url=""))
    wire.world.fleet.tell_gateways(more)
    assert wire.sent[-1] == Gateways(gateways=list(more))


async def test_a_frame_of_the_load_alone_is_no_progress() -> None:
    """Others' work is told while the engine stands still; that must not hide it."""
    wire = Wire()
    wire.dispatch()
    before = wire.link._liveness._step_s
    load = msgspec.structs.replace(
        make_step(), step_us=0, waiting_tokens=9, others_active=3, others_queued_tokens=5
    )
    wire.take(load)
    assert wire.link._liveness._step_s == before
    assert wire.link.account.others_active == 3
    wire.take(make_step())
    assert wire.link._liveness._step_s > before
    assert wire.link.account.others_active == 0


async def test_a_region_whose_credits_others_hold_counts_as_full() -> None:
    wires = [Wire(region="here", credits=0), Wire(region="there", credits=1)]
    groups = {wire.link.hello.region: NodeGroup((wire.link,), frozenset[int]()) for wire in wires}
    assert pick_region(Call([]), ("here", "there"), groups) == "there"
