"""Frames of `/fleet`: valid ones of every kind in any order, mutated fields, and mangled bytes."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import msgspec
from django.conf import settings

from inference.contract.drain import Draining
from inference.contract.frames import (
    PROTOCOL_VERSION,
    AssetPart,
    Credits,
    FromNode,
    Hello,
    KvEvents,
    ModelOffer,
    Pong,
    Rejected,
    Usage,
)
from inference.contract.parts import TokenLogprob, ToolCallDelta, Vectors
from inference.contract.replay import Resume
from inference.contract.roofline import Ceilings, ComputePath, Shares
from inference.contract.tokens import Tokens
from inference.node.assets import ModelAssets
from tests.fuzz.case import JOB
from tests.support.fleet import make_output, make_report, make_step

MODEL = "fuzzed"
POOL = "fuzzed"
# As long as what replaces them, so that frames stay whole.
NODE = b"fuzzed-node-@@"
EPOCH = b"@EPOCH-OF-LINK-@"
FRAMES_MAX = 10
MUTATED_ONE_IN, MANGLED_ONE_IN, LATE_HELLO_ONE_IN, AGAIN_ONE_IN = 3, 12, 8, 4
AGAIN = 4
EXTREMES = (2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, -1)
HUGE_BYTES = 5 * 2**20

replace = msgspec.structs.replace


@cache
def _digest() -> str:
    return ModelAssets(settings.SHIPPED_MODEL_DIR).digest


def hello() -> Hello:
    """A node of the fuzzed pool, with the shipped model's tokenizer, which the gateway knows."""
    offer = ModelOffer(name=MODEL, digest=_digest(), context_window=4096, vocab_size=8192)
    return Hello(
        protocol=PROTOCOL_VERSION,
        node=NODE.decode(),
        epoch=EPOCH.decode(),
        pool=POOL,
        region="local",
        engine="hand",
        device="none",
        dtype="none",
        block_size=32,
        kv_blocks=64,
        credits=4,
        capabilities=["stream", "cancel", "n", "tokens", "deadline"],
        models=[offer],
        cold_start_ms=5,
        ceilings=Ceilings(read_bytes_s=1e9, flop_s=1e9, source="measured"),
        path=ComputePath(kernels="torch", slow="reason", decode_tokens_s=1.0),
        release="0.0.1",
    )


@cache
def valid() -> tuple[FromNode, ...]:
    """At least one frame of every kind; those of a job name the one that runs."""
    output = make_output(JOB, usage=Usage(prompt_tokens=8, cached_tokens=0, completion_tokens=1))
    logprob = TokenLogprob(token=1, logprob=-0.5, top=[(1, -0.5), (2, -1.5)])
    call = ToolCallDelta(index=0, id="c", name="f", arguments="{}")
    step = make_step(output)
    return (
        hello(),
        step,
        make_step(replace(output, finish="stop")),
        make_step(replace(output, finish="length", logprobs=[logprob])),
        make_step(replace(output, tokens=[], text="x", tool_calls=[call])),
        make_step(replace(output, tokens=[], vectors=Vectors(places=[0], data=b"\0" * 64))),
        make_step(make_output(b"\7" * 16)),
        replace(step, outputs=[], drafted=5, accepted=3, shares=Shares(decode=0.5, prefill=0.5)),
        replace(step, outputs=[], step_us=0, prefilled_tokens=9, others_active=2),
        make_report(JOB, model=MODEL),
        make_report(b"\7" * 16, model=MODEL),
        Rejected(request=JOB, code="full", message="no room"),
        Rejected(request=JOB, code="bad_request", message="no"),
        Credits(number=1, credits=2),
        KvEvents(seq=0, stored=b"\1" * 32, removed=b"", snapshot=True),
        KvEvents(seq=1, stored=b"\2" * 16, removed=b"\1" * 16),
        AssetPart(digest=_digest(), name="tokenizer.json", data=b"{}", last=True),
        Draining(deadline_s=1.0),
        Pong(number=1),
        Tokens(number=1, ids=b"\1\0\0\0"),
        Resume(session="session", received=0, held=0),
    )  # fmt: skip


def value(chance: random.Random) -> Any:
    """Something that a field seldom holds, as far as msgpack can say it."""
    return chance.choice((
        None, True, False, 0, -1, 1, 2**15, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63,
        2**64 - 1, -(2**63), 0.0, -0.0, -1.5, 1e308, 5e-324, float("inf"),
        float("-inf"), float("nan"),
        "", "\0", "x" * 400, "\ud7ff\u202e", "stop", "error", b"", b"\0" * 16, b"\xff" * 15,
        b"\0" * 4_000,        [], [[]], {}, [1] * 5_000, [None], "gone", JOB,
    ))  # fmt: skip


def mutate(frame: FromNode, chance: random.Random) -> bytes:
    """The frame with one or two of its fields, at any depth, replaced, left out or doubled."""
    parts: list[Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(frame))
    for _ in range(chance.choice((1, 1, 2))):
        at = parts
        while True:
            # The tag stays most often: without it nothing else is looked at.
            place = chance.randrange(len(at))
            inner = at[place]
            if isinstance(inner, list) and inner and chance.random() < 0.7:
                at = inner
                continue
            break
        action = chance.randrange(8)
        if action == 0:
            del at[place]
        elif action == 1:
            at.insert(place, inner)
        elif isinstance(inner, int) and action < 6:
            at[place] = chance.choice(EXTREMES)
        else:
            at[place] = value(chance)
        if not parts:
            break
    return msgspec.msgpack.encode(parts)


def mangle(data: bytes, chance: random.Random) -> bytes:
    """Bytes changed, cut or added."""
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    made = bytes(changed[: chance.randrange(1, len(changed) + 1)])
    return chance.choice((made, made, made + data, b"\x91" * 50_000, data + b"\0" * HUGE_BYTES))


def draw_frames(chance: random.Random) -> list[bytes]:
    """What one link sends, from its first frame on."""
    encode = msgspec.msgpack.encode
    # Hello first and last, mutated now and then.
    frames: list[FromNode] = [hello()] if chance.randrange(LATE_HELLO_ONE_IN) else []
    frames += [chance.choice(valid()) for _ in range(chance.randrange(1, FRAMES_MAX))]
    made = []
    for place, frame in enumerate(frames):
        spoilt = place or not chance.randrange(3)
        if spoilt and not chance.randrange(MUTATED_ONE_IN):
            made.append(mutate(frame, chance))
        elif spoilt and not chance.randrange(MANGLED_ONE_IN):
            made.append(mangle(encode(frame), chance))
        else:
            made.append(encode(frame))
        if not chance.randrange(AGAIN_ONE_IN):
            # What is counted adds up.
            made += [made[-1]] * AGAIN
    return made
