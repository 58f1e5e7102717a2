"""A link fed by hand: whatever bytes come, it never raises, and its account comes out even."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.gateway.nodes.checks import hello_problem
from controlplane.gateway.nodes.drafts import DraftedTokens
from controlplane.gateway.nodes.facts import LinkState
from controlplane.gateway.nodes.host import LinkRefused
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.measured.account import NoCredit
from controlplane.gateway.nodes.stream import JobRejected, JobStream, NodeLost
from inference.contract.codec import decode_from_gateway, encode
from inference.contract.frames import (
    ASSET_PART_BYTES,
    FRAME_BYTES_MAX,
    AssetPart,
    Cancel,
    FromGateway,
    FromNode,
    Job,
    KvEvents,
    KvSnapshotRequest,
    Output,
    Pong,
    Processing,
    Rejected,
    Timing,
)
from inference.contract.parts import TokenLogprob
from tests.support.fleet import (
    MODEL,
    NODE,
    QUICK,
    World,
    make_hello,
    make_job,
    make_output,
    make_report,
    make_step,
    make_usage,
    with_ticket,
)


class Wire:
    """One link with what it sent and how it closed."""

    def __init__(self, **hello: object) -> None:
        self.world = World(msgspec.structs.replace(QUICK, tick_s=3600.0))
        self.sent: list[FromGateway] = []
        self.closed: list[tuple[int, str]] = []
        self.link: NodeLink = self.world.fleet.connect(
            self.world.fleet_port.identities["node_sluice_test"],
            send=lambda data: self.sent.append(decode_from_gateway(data)),
            close=lambda code, reason: self.closed.append((code, reason)),
        )
        self.take(make_hello(**hello))
        self.sent.clear()

    def take(self, frame: FromNode) -> None:
        self.link.on_bytes(encode(frame))

    def dispatch(self, *, max_tokens: int = 4) -> tuple[Job, JobStream]:
        made = make_job(max_tokens=max_tokens)
        return made, self.world.fleet.dispatch(self.link, made)

    @property
    def strikes(self) -> int:
        return self.link._strikes


def with_logprobs(output: Output, **changes: object) -> Output:
    entry = TokenLogprob(token=1, logprob=-0.1, top=[(1, -0.1)])
    return msgspec.structs.replace(output, logprobs=[msgspec.structs.replace(entry, **changes)])


def cases(job: Job) -> dict[str, Output]:
    """Outputs that cannot be true after one token of a job with four prompt tokens."""
    good = make_output(job.request)
    timing = msgspec.structs.replace(good.timing, held_us=-1)
    return {
        "foreign request": make_output(b"f" * 16),
        "choice out of range": msgspec.structs.replace(good, choice=1),
        "negative choice": msgspec.structs.replace(good, choice=-1),
        "token over the vocabulary": msgspec.structs.replace(good, tokens=[256]),
        "negative token": msgspec.structs.replace(good, tokens=[-1]),
        "unknown finish": msgspec.structs.replace(good, finish="done"),
        "cached over prompt": msgspec.structs.replace(good, usage=make_usage(cached=5)),
        "prompt over ours": msgspec.structs.replace(good, usage=make_usage(prompt=5)),
        "prompt backwards": msgspec.structs.replace(good, usage=make_usage(prompt=3)),
        "completion backwards": msgspec.structs.replace(good, usage=make_usage(completion=0)),
        "inflated completion": msgspec.structs.replace(good, usage=make_usage(completion=4)),
        "over max_tokens": msgspec.structs.replace(
            good, tokens=[1] * 20, usage=make_usage(completion=21)
        ),
        "negative duration": msgspec.structs.replace(good, timing=timing),
        "endless duration": msgspec.structs.replace(
            good, timing=msgspec.structs.replace(good.timing, decode_us=2**31)
        ),
        "logprob of no token": with_logprobs(good, token=256),
        "logprob of a negative token": with_logprobs(good, token=-1),
        "alternative that is no token": with_logprobs(good, top=[(1, -0.1), (2**40, -2.0)]),
        "logprob that is no number": with_logprobs(good, logprob=float("nan")),
        "endless logprob": with_logprobs(good, logprob=float("-inf")),
        "alternative that is no number": with_logprobs(good, top=[(1, float("inf"))]),
        "logprobs without tokens": msgspec.structs.replace(good, logprobs=[]),
    }


@pytest.mark.parametrize("name", list(cases(make_job())))
async def test_an_impossible_output_is_one_strike_and_ends_only_its_job(name: str) -> None:
    wire = Wire()
    job, stream = wire.dispatch()
    _, other = wire.dispatch()
    wire.take(make_step(make_output(job.request)))
    wire.take(make_step(cases(job)[name], make_output(other.request)))
    assert wire.strikes == 1
    assert wire.link.state is LinkState.READY
    assert len(await other.batch()) == 1
    if name != "foreign request":
        assert wire.sent[-1] == Cancel(request=job.request)
        await stream.batch()
        with pytest.raises(NodeLost):
            await stream.batch()
        wire.take(make_step(make_output(job.request)))
        assert wire.strikes == 1, "late outputs of a job that we gave up are no offence"
    await wire.world.fleet.close()


async def test_an_end_token_may_be_counted_but_not_delivered() -> None:
    wire = Wire()
    job, stream = wire.dispatch()
    wire.take(make_step(make_output(job.request)))
    last = make_output(job.request, tokens=[], finish="stop", usage=make_usage(completion=2))
    wire.take(make_step(last))
    assert (wire.strikes, stream.ended) == (0, True)
    await wire.world.fleet.close()


@pytest.mark.parametrize(
    "frame",
    [
        make_hello(),
        msgspec.structs.replace(make_step(), running=-1),
        msgspec.structs.replace(make_step(), drafted=1, accepted=2),
        msgspec.structs.replace(make_step(), drafted=2**21),
        msgspec.structs.replace(make_step(), oldest_block_s=float("nan")),
        msgspec.structs.replace(make_step(), processing=[Processing(request=b"x", silent_ms=-1)]),
        Pong(number=7),
        Rejected(request=b"x" * 16, code="full", message=""),
        KvEvents(seq=1, stored=b"cut", removed=b""),
        AssetPart(digest="1" * 64, name="tokenizer.json", data=b"", last=True),
        with_ticket(make_report(b"short")),
        with_ticket(make_report(b"r" * 16, finish="paid")),
        with_ticket(make_report(b"r" * 16, usage=make_usage(cached=9))),
        with_ticket(make_report(b"r" * 16, usage=make_usage(prompt=2**31))),
        with_ticket(make_report(b"r" * 16, usage=make_usage(completion=2**31))),
        with_ticket(
            make_report(
                b"r" * 16, timing=Timing(queue_us=0, prefill_us=0, decode_us=0, held_us=2**31)
            )
        ),
    ],
)
async def test_a_frame_that_cannot_be_true_is_one_strike(frame: FromNode) -> None:
    wire = Wire()
    wire.take(frame)
    assert (wire.strikes, wire.closed) == (1, [])
    await wire.world.fleet.close()


@pytest.mark.parametrize("field", ["node", "epoch", "pool", "region", "engine", "device", "dtype"])
def test_a_name_in_a_hello_is_printable(field: str) -> None:
    for text in ("", "a\0", "a\n", "a" * 1000):
        problem = hello_problem(make_hello(**{field: text}))
        assert problem is not None and problem.startswith(f"hello.{field}:")
    offer = make_hello().models[0]
    problem = hello_problem(make_hello(models=[msgspec.structs.replace(offer, name="a\0")]))
    assert problem is not None and problem.startswith("hello.models.name:")


async def test_drafts_are_counted_until_they_are_taken() -> None:
    wire = Wire()
    for drafted, accepted in ((8, 3), (4, 4), (0, 0)):
        wire.take(msgspec.structs.replace(make_step(), drafted=drafted, accepted=accepted))
    counts = wire.world.fleet.drafts
    assert counts.take() == [DraftedTokens(MODEL, 12, 7)]
    assert counts.take() == []
    await wire.world.fleet.close()


async def test_strikes_add_up_to_quarantine() -> None:
    wire = Wire()
    for _ in range(QUICK.strikes_max):
        wire.take(Pong(number=9))
    assert wire.closed[0][0] == 1002
    assert wire.link.state is LinkState.CLOSED
    assert NODE not in wire.world.fleet.nodes()
    await wire.world.fleet.close()


@pytest.mark.parametrize(
    "part",
    [
        AssetPart(digest="0" * 64, name="../../etc/passwd", data=b"", last=False),
        AssetPart(digest="0" * 64, name="tokenizer.json", data=b"wrong", last=True),
        AssetPart(
            digest="0" * 64, name="tokenizer.json", data=bytes(ASSET_PART_BYTES + 1), last=False
        ),
    ],
)
async def test_assets_that_are_not_what_was_offered_expel_their_sender(part: AssetPart) -> None:
    wire = Wire()
    wire.take(part)
    assert wire.closed[0][0] == 1002
    assert NODE not in wire.world.fleet.nodes()
    again = wire.world.fleet_port.with_orders(wire.link.identity)
    with pytest.raises(LinkRefused):
        wire.world.fleet.connect(again, send=lambda data: None, close=lambda code, reason: None)
    await wire.world.fleet.close()


async def test_a_gap_in_kv_events_asks_once_for_a_snapshot() -> None:
    wire = Wire()
    wire.take(KvEvents(seq=5, stored=b"", removed=b""))
    wire.take(KvEvents(seq=6, stored=b"", removed=b""))
    assert wire.sent == [KvSnapshotRequest()]
    wire.take(KvEvents(seq=6, stored=b"b" * 16, removed=b"", snapshot=True))
    assert wire.world.fleet.index(16).cached_blocks([b"b" * 16]) == {NODE: 1}
    wire.link.on_close()
    assert wire.world.fleet.index(16).cached_blocks([b"b" * 16]) == {}
    await wire.world.fleet.close()


async def test_credits_are_a_bound() -> None:
    wire = Wire(credits=2)
    _, first = wire.dispatch()
    wire.dispatch()
    with pytest.raises(NoCredit):
        wire.dispatch()
    wire.take(Rejected(request=first.request, code="full", message="full"))
    with pytest.raises(JobRejected):
        await first.batch()
    wire.dispatch()
    await wire.world.fleet.close()


async def test_a_job_that_no_frame_can_hold_is_rejected_without_sending_it() -> None:
    wire = Wire()
    large = msgspec.structs.replace(make_job(), request_json=b"x" * FRAME_BYTES_MAX)
    stream = wire.world.fleet.dispatch(wire.link, large)
    with pytest.raises(JobRejected, match="is over") as rejected:
        await stream.batch()
    assert rejected.value.code == "too_long"
    assert wire.sent == []
    assert wire.link.account.active == 0
    assert wire.link.state is LinkState.READY


async def test_a_cancel_that_is_not_confirmed_is_given_up() -> None:
    wire = Wire()
    wire.link.limits = msgspec.structs.replace(QUICK, cancel_confirm_s=0.0)
    _, stream = wire.dispatch()
    stream.cancel()
    await asyncio.sleep(0.01)
    wire.link.tick()
    assert (await stream.settled()).completion_tokens == 0
    assert (wire.strikes, wire.link.account.active) == (1, 0)
    await wire.world.fleet.close()


async def test_learned_rates_come_from_steps() -> None:
    wire = Wire()
    job, _ = wire.dispatch()
    prefill = msgspec.structs.replace(make_step(), prefilled_tokens=500, step_us=100_000)
    wire.take(prefill)
    wire.take(make_step(make_output(job.request)))
    speed = wire.link.account.speed
    assert speed.prefill_tokens_per_s == pytest.approx(5000)
    assert speed.step_s == pytest.approx(0.001)
    assert wire.link.account.queued_tokens == 0
    await wire.world.fleet.close()


async def test_where_steps_do_not_say_what_they_prefilled_a_prompt_tells() -> None:
    wire = Wire()
    job, _ = wire.dispatch()
    wire.take(make_step(make_output(job.request)))
    assert wire.link.account.speed.prefill_tokens_per_s == pytest.approx(4000)
    await wire.world.fleet.close()


ACTIONS = ("dispatch", "token", "finish", "cancel", "reject", "garble", "report")


@given(st.lists(st.sampled_from(ACTIONS), max_size=80), st.integers(0, 2**32), st.booleans())
@settings(deadline=None)
def test_the_account_is_zero_in_the_end(actions: list[str], seed: int, lost: bool) -> None:
    asyncio.run(play(actions, random.Random(seed), lost=lost))


async def play(actions: list[str], dice: random.Random, *, lost: bool) -> None:
    wire = Wire(credits=5)
    streams: list[JobStream] = []
    for action in actions:
        act(wire, action, streams, dice)
        account = wire.link.account
        assert 0 <= account.active <= 5
        assert account.active == len(wire.link.jobs)
    if lost:
        wire.link.on_close()
    else:
        for stream in streams:
            if not stream.ended:
                wire.take(make_step(finish_of(stream)))
    assert (wire.link.account.active, wire.link.account.queued_tokens) == (0, 0)
    assert all(stream.ended for stream in streams)
    await wire.world.fleet.close()


def finish_of(stream: JobStream) -> Output:
    usage = make_usage(completion=stream.usage.completion_tokens)
    return make_output(stream.request, tokens=[], finish="cancelled", usage=usage)


def act(wire: Wire, action: str, streams: list[JobStream], dice: random.Random) -> None:
    if wire.link.state is LinkState.CLOSED:
        return
    if action == "dispatch":
        if wire.link.account.credits_left:
            streams.append(wire.dispatch(max_tokens=1000)[1])
        return
    if not streams:
        return
    stream = dice.choice(streams)
    usage = make_usage(completion=stream.usage.completion_tokens + 1)
    if action == "token":
        wire.take(make_step(make_output(stream.request, usage=usage)))
    elif action == "finish":
        wire.take(make_step(finish_of(stream)))
    elif action == "cancel":
        stream.cancel()
    elif action == "reject":
        wire.take(Rejected(request=stream.request, code="full", message=""))
    elif action == "garble":
        wire.take(make_step(make_output(stream.request, tokens=[9999])))
    else:
        wire.take(with_ticket(make_report(stream.request)))


VALID = [
    encode(frame)
    for frame in (
        make_hello(), make_step(make_output(b"r" * 16)), make_report(b"r" * 16), Pong(number=1),
        KvEvents(seq=1, stored=b"s" * 16, removed=b""),
    )
]  # fmt: skip


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """A valid frame with some bytes changed, cut or added."""
    data = bytearray(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(0, 4))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))]) + draw(st.binary(max_size=8))


@given(st.lists(st.one_of(st.binary(max_size=64), mangled()), max_size=20), st.booleans())
@settings(deadline=None, max_examples=300)
def test_no_bytes_crash_a_link(messages: list[bytes], greeted: bool) -> None:
    asyncio.run(fuzz(messages, greeted=greeted))


async def fuzz(messages: list[bytes], *, greeted: bool) -> None:
    wire = Wire() if greeted else Wire(credits=0)
    if greeted:
        wire.dispatch()
    for message in messages:
        wire.link.on_bytes(message)
    wire.link.on_close()
    assert wire.link.account.active == 0
    await wire.world.fleet.close()


async def test_deep_nesting_is_refused() -> None:
    wire = Wire()
    wire.link.on_bytes(b"\x91" * 100_000)
    assert wire.closed[0][0] == 1002
    await wire.world.fleet.close()
