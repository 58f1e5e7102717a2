"""What is measured beside what: each group has servers of its own, whose sides take turns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.gateway import asked
from benchmarks.gateway.asked import NOBODY
from benchmarks.gateway.turns import Run, Server, Side, latency, one_pass, token_cost
from benchmarks.machine import pin, rss_mib
from benchmarks.serve import CONTROL_APP
from benchmarks.stack import OTHER_CORE, Stack, embed_node, node, serve

GATEWAY_APP = "controlplane.asgi:application"
PACED_PER_S = 200
# A node that answers in one step leaves the gateway one frame to read; this one sends a frame each.
STEP_PER_TOKEN = ("--tokens-per-step", "1")
FEATURE = "chat, {}"


@contextlib.contextmanager
def servers(*, samples: Path | None = None, pinned: bool = True) -> Iterator[tuple[Server, Server]]:
    """Gateway and control, both running."""
    with (
        serve(CONTROL_APP, pinned=pinned) as control,
        serve(GATEWAY_APP, samples=samples, pinned=pinned) as gateway,
    ):
        yield Server(*gateway), Server(*control)


@contextlib.contextmanager
def echoed(
    made: Stack, *engine: str, samples: Path | None = None, pinned: bool = True
) -> Iterator[tuple[Server, Server]]:
    """The same, with a node that echoes."""
    with (
        servers(samples=samples, pinned=pinned) as (gateway, control),
        node(made, gateway.port, "--engine", "echo", *engine),
    ):
        yield gateway, control


def whole(run: Run) -> None:
    """Answers in one body, of each feature and shape, as fast as they come."""
    with echoed(run.made) as (gateway, control):
        run.recorder.keep("idle", {"rss_mib": rss_mib(gateway.pid)})
        features = [
            Side(FEATURE.format(name), gateway, asked.chat(key))
            for name, key in run.made.feature_keys.items()
        ]
        sides = [
            Side("control", control, asked.chat(NOBODY)),
            *features,
            Side("chat", gateway, asked.chat(run.made.key)),
            Side("completions", gateway, asked.completion(run.made.key)),
            Side("responses", gateway, asked.response(run.made.key)),
            Side("messages", gateway, asked.message(run.made.key)),
        ]
        run.in_turns(sides, run.cost)


def sampled(run: Run, samples: Path) -> None:
    """Chats again, in a gateway that is slowed by the sampler: only shares are taken from it."""
    with echoed(run.made, samples=samples) as (gateway, _):
        side = Side("sampled", gateway, asked.chat(run.made.key))
        one_pass(side, run.plan.warm_s, clients=1)
        tally, used_s = one_pass(side, run.plan.seconds * 2, clients=16)
        run.recorder.keep("sampled", run.cost(tally, used_s))
        run.errors += tally.errors


def streams(run: Run) -> None:
    """Streams of twenty tokens, each in a frame of its own, beside the same answered whole."""
    with echoed(run.made, *STEP_PER_TOKEN) as (gateway, control):
        sides = [
            Side("streams", gateway, asked.streamed(run.made.key)),
            Side("whole beside streams", gateway, asked.chat(run.made.key)),
            Side("control beside streams", control, asked.chat(NOBODY)),
        ]
        run.in_turns(sides, run.cost)


def embeddings(run: Run) -> None:
    """Texts that a real encoder embeds; its node is the slower part, the gateway waits for it."""
    with servers() as (gateway, control), embed_node(run.made, gateway.port):
        sides = [
            Side("embeddings", gateway, asked.embedding(run.made.key)),
            Side("control beside embeddings", control, asked.chat(NOBODY)),
        ]
        run.in_turns(sides, run.cost)


def one_client(run: Run) -> None:
    """Latency. Nothing is pinned: what waits for another process waits for no core."""
    with echoed(run.made, pinned=False) as (gateway, control):
        pin(0)
        sides = [
            Side("one client", gateway, asked.chat(run.made.key)),
            Side("one client of the control", control, asked.chat(NOBODY)),
            Side("one stream", gateway, asked.streamed(run.made.key)),
        ]
        run.in_turns(sides, latency, clients=1)
        pin(0, OTHER_CORE)


def paced(run: Run) -> None:
    """Tokens 5 ms apart in sixteen streams, which share a node's steps."""
    with echoed(run.made, "--tokens-per-s", str(PACED_PER_S)) as (gateway, control):
        sides = _paced(run, "paced", gateway, control)
        for name, path in (("responses", asked.RESPONSES), ("messages", asked.MESSAGES)):
            work = asked.streamed(run.made.key, run.plan.paced_tokens, path)
            sides.append(Side(f"paced {name}", gateway, work))
        run.in_turns(sides, token_cost)


def lone(run: Run) -> None:
    """The same in a lone stream, where each token wakes the gateway from idle and cold."""
    with echoed(run.made, "--tokens-per-s", str(PACED_PER_S)) as (gateway, control):
        run.in_turns(_paced(run, "lone", gateway, control), token_cost, clients=1)


def _paced(run: Run, name: str, gateway: Server, control: Server) -> list[Side]:
    tokens = run.plan.paced_tokens
    return [
        Side(name, gateway, asked.streamed(run.made.key, tokens)),
        Side(f"{name} control", control, asked.paced_events(tokens)),
    ]


# Those whose ratio to the control is told.
COMPARED: Mapping[str, Callable[[Run], None]] = {
    "whole": whole,
    "streams": streams,
    "embeddings": embeddings,
    "paced": paced,
}
