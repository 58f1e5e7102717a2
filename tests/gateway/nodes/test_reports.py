"""Reports of nodes: only of jobs that they were given, only from nodes that are trusted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.models import Approval
from controlplane.gateway.ports import NodeIdentity, Orders
from inference.contract.codec import decode_from_gateway, encode
from inference.contract.frames import Ack, FromGateway, Job, ModelOffer, Report
from inference.node.assets import ModelAssets
from tests.support.fleet import (
    EPOCH,
    GATEWAY,
    MODEL,
    VOCAB_SIZE,
    World,
    make_hello,
    make_job,
    make_model,
    make_report,
    new_request,
    with_ticket,
)
from tests.support.waiting import until

OTHER_GATEWAY = "gateway-2"
NAME = "ada"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path)


class Reporter:
    """A node that serves the tiny model, without a socket."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.sent: list[FromGateway] = []
        self.assets = ModelAssets(folder)
        self.link: NodeLink = world.fleet.connect(
            world.fleet_port.with_orders(NodeIdentity(id=NAME, name=NAME, models=None)),
            send=lambda data: self.sent.append(decode_from_gateway(data)),
            close=lambda code, reason: None,
        )
        offer = ModelOffer(
            name=MODEL, digest=self.assets.digest, context_window=4096, vocab_size=VOCAB_SIZE
        )
        self.link.on_bytes(encode(make_hello(node=NAME, models=[offer])))

    async def serve(self) -> None:
        """Until the model can be dispatched to it."""
        for part in self.assets.parts(self.assets.digest):
            self.link.on_bytes(encode(part))
        await until(lambda: self.world.fleet.candidates(MODEL))

    def work(self) -> Job:
        """The frame of a job that it is given."""
        self.world.fleet.dispatch(self.link, make_job())
        job = self.sent[-1]
        assert isinstance(job, Job)
        return job

    async def report(self, report: Report) -> None:
        """Send it and wait until it is decided."""
        self.link.on_bytes(encode(report))
        await self.world.fleet.reports.close()

    @property
    def strikes(self) -> int:
        return self.link._strikes

    @property
    def acknowledged(self) -> list[bytes]:
        return [name for each in self.sent if isinstance(each, Ack) for name in each.requests]


async def test_reports_wait_for_live_calls_and_are_asked_once(model: Path) -> None:
    world = World()
    ada = Reporter(world, model)
    await ada.serve()
    job = ada.work()
    report = make_report(job.request, ticket=job.ticket)
    ada.link.on_bytes(encode(report))
    await asyncio.sleep(0)
    assert world.reports == []
    world.fleet.abandon(job.request)
    for _ in range(3):
        ada.link.on_bytes(encode(report))
    await world.fleet.reports.close()
    assert (world.reports, world.givers) == ([report], [GATEWAY])
    assert (ada.acknowledged, ada.strikes) == ([job.request], 0)
    assert world.fleet.reports.live_calls == 0
    await world.fleet.close()


async def test_the_ledger_is_told_which_gateway_gave_the_job(model: Path) -> None:
    world = World()
    ada = Reporter(world, model)
    report = with_ticket(make_report(new_request()), node=NAME, gateway=OTHER_GATEWAY)
    await ada.report(report)
    assert (world.reports, world.givers) == ([report], [OTHER_GATEWAY])
    assert ada.acknowledged == [report.request]
    await world.fleet.close()


SOUND = with_ticket(make_report(new_request()), node=NAME)
FALSE_CLAIMS = {
    "no ticket": make_report(new_request()),
    "made up": make_report(new_request(), ticket=b"x" * 48),
    "of another node": with_ticket(make_report(new_request()), node="bob"),
    "of an earlier life": with_ticket(make_report(new_request()), node=NAME, epoch=EPOCH + "0"),
    "of another request": msgspec.structs.replace(SOUND, request=new_request()),
    "of another model": msgspec.structs.replace(SOUND, model="another"),
    "of another gateway": msgspec.structs.replace(SOUND, ticket=SOUND.ticket + b"2"),
}


@pytest.mark.parametrize("standing", ["active", "draining", "pending"])
@pytest.mark.parametrize("name", list(FALSE_CLAIMS))
async def test_a_report_of_a_job_that_was_never_given_is_a_strike(
    model: Path, name: str, standing: str
) -> None:
    world = World()
    world.fleet_port.said[NAME] = msgspec.convert({"standing": standing}, Orders)
    ada = Reporter(world, model)
    await ada.report(FALSE_CLAIMS[name])
    assert (ada.strikes, world.reports, ada.acknowledged) == (1, [], [])
    await world.fleet.close()


async def test_a_draining_node_reports_what_it_had(model: Path) -> None:
    world = World()
    ada = Reporter(world, model)
    await ada.serve()
    job = ada.work()
    world.fleet.abandon(job.request)
    ada.link.obey(Orders(standing="draining", drain_s=60.0))
    await ada.report(make_report(job.request, ticket=job.ticket))
    assert ada.acknowledged == [job.request]
    await world.fleet.close()


async def test_reports_of_a_node_that_is_no_longer_trusted_wait_until_it_is(model: Path) -> None:
    world = World()
    ada = Reporter(world, model)
    await ada.serve()
    job = ada.work()
    world.fleet.abandon(job.request)
    report = make_report(job.request, ticket=job.ticket)
    world.fleet.approve({MODEL: Approval(digests=frozenset())})
    await ada.report(report)
    world.fleet.approve({MODEL: Approval()})
    ada.link.obey(Orders(standing="pending"))
    await ada.report(report)
    assert (world.reports, ada.strikes) == ([], 0)
    ada.link.obey(Orders())
    await ada.report(report)
    assert ada.acknowledged == [job.request]
    await world.fleet.close()


async def test_a_report_that_the_ledger_fails_on_is_left_for_the_next_time(model: Path) -> None:
    world = World()

    async def fail(report: Report, gateway: str) -> bool:
        raise RuntimeError("no database")

    world.fleet.reports._on_report = fail
    ada = Reporter(world, model)
    await ada.report(with_ticket(make_report(new_request()), node=NAME))
    assert (ada.acknowledged, ada.strikes) == ([], 0)
    await world.fleet.close()
