"""The answer of `POST /v1/preflight` as JSON; amounts in nano-USD, tokens as they are billed."""

from typing import Literal

import msgspec

from controlplane.gateway.ports import Room
from controlplane.gateway.tasks.preflight import Forecast
from controlplane.kernel.apis import ErrorFacts
from controlplane.kernel.insights.fixes import code_for
from controlplane.kernel.insights.hygiene import KINDS, NOT_STREAMED
from controlplane.kernel.money import usd_text


class RefusedWith(ErrorFacts):
    """The error that the request would get."""

    status: int


class ServedBy(msgspec.Struct):
    """Who would answer; no nodes where none serves the model at the moment."""

    model: str
    pool: str
    region: str | None
    nodes: int


class TokensAhead(msgspec.Struct):
    """`prompt` is a bound unless it was `counted`."""

    prompt: int
    counted: bool
    cached_predicted: int
    output_at_most: int
    estimated_for_limits: int


class ContextLeft(msgspec.Struct):
    window: int
    left: int
    fits: bool


class CostAhead(msgspec.Struct):
    prompt_nano: int
    at_most_nano: int
    held_nano: int
    at_most_usd: str


class BindingRoom(Room, frozen=True):
    """A limit, and whether it refuses the request."""

    binds: bool


class BindingBudget(msgspec.Struct):
    scope: str
    remaining_nano: int
    binds: bool


class StreamingAhead(msgspec.Struct):
    """Whether it would be streamed, and whether the stream ends with its usage."""

    asked: bool
    includes_usage: bool
    code: str


class HygieneFinding(msgspec.Struct):
    """Tokens spent for nothing, and the fix, also as code; the saving is an estimate."""

    kind: str
    what: str
    fix: str
    code: str
    tokens: int
    saves_nano: int


class Preflight(msgspec.Struct, kw_only=True):
    """What a request would meet; nothing was run or charged."""

    object: Literal["preflight"]
    model: str
    route: str
    would_run: bool
    refusals: list[RefusedWith]
    served_by: ServedBy
    tokens: TokensAhead
    context: ContextLeft
    cost: CostAhead
    limits: list[BindingRoom]
    budgets: list[BindingBudget]
    streaming: StreamingAhead
    hygiene: list[HygieneFinding]


def show_preflight(found: Forecast) -> bytes:
    step = found.step
    cluster = None if found.way is None else found.way.prepared.cluster
    window, region, nodes = step.model.context_window, None, 0
    if cluster is not None:
        window = min(window, cluster.served.context_window)
        region, nodes = cluster.region, len(cluster.nodes)
    tokens = found.prompt_tokens, found.counted, found.cached_tokens, found.output_tokens
    fits = "context_length_exceeded" not in {each.code for each in found.refusals}
    cost = found.prompt_nano, found.most_nano, found.held_nano
    told = Preflight(
        object="preflight",
        model=found.ask.model,
        route=found.route,
        would_run=not found.refusals,
        refusals=[{"status": each.status, **each.body["error"]} for each in found.refusals],
        served_by=ServedBy(step.model.name, step.pool, region, nodes),
        tokens=TokensAhead(*tokens, found.estimated_tokens),
        context=ContextLeft(window, window - found.prompt_tokens, fits),
        cost=CostAhead(*cost, usd_text(found.most_nano)),
        limits=[_room(room, room in found.binding) for room in found.rooms],
        budgets=[
            BindingBudget(one.scope, one.left_nano, one.left_nano < found.held_nano)
            for one in found.standing.budgets
        ],
        streaming=StreamingAhead(
            found.ask.stream,
            found.ask.include_usage,
            "" if found.ask.stream else code_for(NOT_STREAMED, found.client),
        ),
        hygiene=[
            HygieneFinding(
                one.kind, *KINDS[one.kind], code_for(one.kind, found.client), one.tokens, one.nano
            )
            for one in found.findings
        ],
    )
    return msgspec.json.encode(told)


def _room(room: Room, binds: bool) -> BindingRoom:
    reset_s = round(room.reset_s, 3)
    return BindingRoom(room.dimension, room.scope, room.limit, room.remaining, reset_s, binds)
