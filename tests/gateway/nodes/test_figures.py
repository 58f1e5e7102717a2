"""Every figure of every frame that a node can send has a range: beyond it is a strike by name."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Iterator

import msgspec
import pytest

from controlplane.gateway.nodes.facts import LinkState
from controlplane.gateway.nodes.host import LinkRefused
from controlplane.gateway.nodes.link import NodeLink
from inference.contract.codec import encode
from inference.contract.drain import Draining
from inference.contract.frames import (
    AssetPart,
    Credits,
    FromNode,
    Hello,
    Job,
    KvEvents,
    Offers,
    Output,
    Pong,
    Processing,
    Rejected,
    Step,
)
from inference.contract.parts import TokenLogprob, ToolCallDelta, Vectors
from inference.contract.replay import Resume
from inference.contract.roofline import Ceilings, ComputePath, Shares
from inference.contract.tokens import Tokens
from tests.support.fleet import (
    QUICK,
    World,
    make_hello,
    make_job,
    make_output,
    make_report,
    make_step,
)

Path = tuple[str | int, ...]
INTS = (-(2**63), -1, 2**53, 2**63 - 1, 2**64 - 1)
FLOATS = (math.nan, math.inf, -math.inf, 1.7e308, -1.7e308)
REQUEST = b"r" * 16


def full_output(job: Job) -> Output:
    return make_output(
        job.request,
        logprobs=[TokenLogprob(token=1, logprob=-0.1, top=[(1, -0.1)])],
        tool_calls=[ToolCallDelta(index=0)],
        vectors=Vectors(places=[0], data=b"\0" * 4),
        prompt_logprobs=[TokenLogprob(token=1, logprob=-0.1, top=[(1, -0.1)])],
    )


def full_frames(job: Job) -> list[FromNode]:
    """One of each kind, with something in every field that can hold a figure."""
    hello = make_hello(
        ceilings=Ceilings(read_bytes_s=1e9, flop_s=1e9, source="test"),
        path=ComputePath(kernels="torch", decode_tokens_s=1.0, prefill_tokens_s=1.0),
    )
    offer = msgspec.structs.replace(hello.models[0], dimensions=[8])
    step = msgspec.structs.replace(
        make_step(full_output(job)),
        shares=Shares(decode=0.5, prefill=0.5),
        processing=[Processing(request=REQUEST, silent_ms=5)],
    )
    return [
        msgspec.structs.replace(hello, models=[offer]),
        Offers(models=[offer], capabilities=["text"]),
        Resume(session="session", received=1, held=1),
        AssetPart(digest="0" * 64, name="tokenizer.json", data=b"", last=True),
        step,
        KvEvents(seq=1, stored=b"", removed=b""),
        make_report(REQUEST),
        Rejected(request=REQUEST, code="full", message=""),
        Credits(number=1, credits=4),
        Draining(deadline_s=1.0),
        Pong(number=1, cpu_permille=0),
        Tokens(number=1, ids=b""),
    ]


def figures(kind: object, value: object, path: Path = ()) -> Iterator[tuple[Path, type]]:
    """Where figures are in a value of a declared type; a place that holds none is a fault here."""
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        [kind] = [each for each in arguments if each is not type(None)]
        yield from figures(kind, value, path)
    elif kind is int or kind is float:
        assert value is not None, f"{path}: the frame of this test has no figure there"
        yield path, kind
    elif origin in (list, tuple):
        assert isinstance(value, (list, tuple))
        inner = arguments if origin is tuple else arguments[:1]
        if any(_holds_figures(each) for each in inner):
            assert value, f"{path}: the frame of this test has nothing there"
            for place, each in enumerate(inner):
                yield from figures(each, value[place], (*path, place))
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        assert isinstance(value, kind), f"{path}: the frame of this test has nothing there"
        hints = typing.get_type_hints(kind)
        for field in kind.__struct_fields__:
            yield from figures(hints[field], getattr(value, field), (*path, field))


def _holds_figures(kind: object) -> bool:
    return kind in (int, float) or bool(typing.get_args(kind)) or hasattr(kind, "__struct_fields__")


def changed(value: object, path: Path, figure: float) -> object:
    if not path:
        return figure
    first, *rest = path
    if isinstance(first, str):
        assert isinstance(value, msgspec.Struct)
        inner = changed(getattr(value, first), tuple(rest), figure)
        return msgspec.structs.replace(value, **{first: inner})
    assert isinstance(value, (list, tuple))
    items = list(value)
    items[first] = changed(items[first], tuple(rest), figure)
    return type(value)(items)


JOB = make_job()
CASES = [
    pytest.param(frame, path, kind, id=".".join([type(frame).__name__, *map(str, path)]))
    for frame in full_frames(JOB)
    for path, kind in figures(type(frame), frame)
]


def test_every_kind_of_frame_is_walked() -> None:
    assert {type(frame) for frame in full_frames(JOB)} == set(typing.get_args(FromNode))


@pytest.mark.parametrize(("frame", "path", "kind"), CASES)
async def test_a_figure_beyond_its_range_is_a_strike_with_its_name(
    frame: FromNode, path: Path, kind: type
) -> None:
    for figure in INTS if kind is int else FLOATS:
        bad = changed(frame, path, figure)
        reason = await what_is_said_of(typing.cast(FromNode, bad), path)
        assert reason, f"{figure} was taken"
        assert _named(path) in reason, reason


async def what_is_said_of(frame: FromNode, path: Path) -> str:
    """The reason of a strike, or of a refused hello; empty where the frame was taken."""
    world = World(msgspec.structs.replace(QUICK, tick_s=3600.0, strikes_max=1))
    closed: list[str] = []
    identity = next(iter(world.fleet_port.identities.values()))
    link: NodeLink = world.fleet.connect(
        identity,
        send=lambda data: None,
        close=lambda code, reason: closed.append(reason),
    )
    try:
        if not isinstance(frame, Hello):
            dimensions = [1] if "vectors" in path else []
            offer = msgspec.structs.replace(make_hello().models[0], dimensions=dimensions)
            link.on_bytes(encode(make_hello(models=[offer])))
        if isinstance(frame, Step):
            frame = _with_its_job(world, link, frame, path)
        try:
            link.on_bytes(encode(frame))
        except LinkRefused as refused:
            return refused.reason
        return closed[0] if closed else ""
    finally:
        await world.fleet.close()


def _with_its_job(world: World, link: NodeLink, step: Step, path: Path) -> Step:
    """The step with the one kind of output whose figure is meant, and a job of that kind."""
    if path[0] != "outputs":
        return msgspec.structs.replace(step, outputs=[])
    job = make_job(request_json=b"{}" if "tool_calls" in path else b"")
    if "vectors" in path:
        job = msgspec.structs.replace(job, tokens=[], inputs=[[1]])
    assert link.state is LinkState.READY
    world.fleet.dispatch(link, job)
    [output] = step.outputs
    foreign = {"logprobs", "prompt_logprobs", "tool_calls", "vectors"} - set(path)
    blank: dict[str, object] = dict.fromkeys(foreign)
    tokens = [] if {"tool_calls", "vectors"} & set(path) else output.tokens
    output = msgspec.structs.replace(output, request=job.request, tokens=tokens, **blank)
    return msgspec.structs.replace(step, outputs=[output])


def _named(path: Path) -> str:
    """The last field of a path: what must stand in the sentence."""
    fields = [each for each in path if isinstance(each, str)]
    together = {"logprobs", "prompt_logprobs", "timing", "tool_calls"}.intersection(fields)
    return together.pop() if together else fields[-1]
