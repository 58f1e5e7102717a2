"""Links of one gateway whose far ends, and the clock, a test moves by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from controlplane.gateway.nodes.limits import LinkLimits
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.measured.breaker import BreakerState
from controlplane.gateway.nodes.stream import JobStream
from inference.contract.codec import decode_from_gateway, encode
from inference.contract.frames import (
    FromGateway,
    FromNode,
    Job,
    ModelOffer,
    Ping,
    Pong,
    Processing,
    Step,
)
from tests.support.clock import Clock
from tests.support.fleet import (
    MODEL,
    MemoryPort,
    World,
    make_hello,
    make_job,
    make_output,
    make_step,
)

# Long ticks of the loop: these tests look at the clock themselves.
LIMITS = LinkLimits(tick_s=3600.0, eject_s=10.0)
QUIET_S, FIRST_S = LIMITS.quiet.floor_s, LIMITS.first_token.floor_s
GAP_S_MAX = LIMITS.inter_token.cap_s
STEP_S = 0.02
SILENCE_S = 120.0
# Of a server behind the node, so that no tokenizer has to come first.
OFFER = ModelOffer(name=MODEL, digest="", context_window=4096, vocab_size=0)


class Node:
    """The far end of one link, by hand."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet = fleet
        self.sent: list[FromGateway] = []
        self.codes: list[int] = []
        identity = msgspec.structs.replace(
            MemoryPort().identities["node_sluice_test"], id=name, name=name
        )
        self.link: NodeLink = fleet.world.fleet.connect(
            identity,
            send=lambda data: self.sent.append(decode_from_gateway(data)),
            close=lambda code, reason: self.codes.append(code),
        )
        self.take(make_hello(node=name, models=[OFFER], credits=64, silence_s=SILENCE_S))

    @property
    def state(self) -> BreakerState:
        return self.link.breaker.state

    @property
    def serves(self) -> bool:
        return self.link in self.fleet.world.fleet.candidates(MODEL)

    def take(self, frame: FromNode) -> None:
        self.link.on_bytes(encode(frame))

    def dispatch(self) -> tuple[Job, JobStream]:
        made = make_job(request_json=b"{}")
        return made, self.fleet.world.fleet.dispatch(self.link, made)

    def answer(self, job: Job, *, finish: str | None = None) -> None:
        output = make_output(job.request, tokens=[], text="a", finish=finish)
        self.take(make_step(output))

    def serve(self, jobs: int, *, after_s: float = STEP_S, finish: str = "stop") -> None:
        """Some jobs one after another, each answered in two steps."""
        for _ in range(jobs):
            job, _ = self.dispatch()
            self.fleet.clock.pass_s(after_s)
            self.answer(job)
            self.fleet.clock.pass_s(STEP_S)
            self.answer(job, finish=finish)

    def look(self, after_s: float) -> None:
        """Let time pass and look at the clock, as the fleet's tick does."""
        self.fleet.clock.pass_s(after_s)
        self.link.tick()

    def pong(self) -> None:
        """Answer the last ping, if there was any."""
        pings = [frame for frame in self.sent if isinstance(frame, Ping)]
        if pings:
            self.take(Pong(number=pings[-1].number))


class Fleet:
    """Nodes that serve one model, and the clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.world = World(LIMITS)
        self.nodes = [Node(self, f"node-{number}") for number in (1, 2)]


@pytest.fixture
async def fleet(clock: Clock) -> AsyncIterator[Fleet]:
    made = Fleet(clock)
    yield made
    assert all(node.link.account.active == len(node.link.jobs) for node in made.nodes)
    await made.world.fleet.close()
    assert all(node.link.account.active == 0 for node in made.nodes)


def still_processing(*jobs: Job, silent_s: float) -> Step:
    """What a node says while the server behind it shows nothing."""
    processing = [Processing(request=j.request, silent_ms=round(silent_s * 1000)) for j in jobs]
    return msgspec.structs.replace(make_step(), step_us=0, processing=processing)
