"""`POST /v1/preflight`: what a chat completion would meet, found without running it.

It takes the steps of stages 1 to 4 that decide and leaves out those that do: nothing is counted,
held, remembered or sent to a node. Encoding costs the gateway time, so each key has a bound.
"""

from contextlib import closing

import msgspec

from controlplane.gateway.after.hygiene import Past, marks_of
from controlplane.gateway.after.misses.find import Reuse, inquiry_of
from controlplane.gateway.after.waste import USER_AGENT, look_of
from controlplane.gateway.app_state import AppState
from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.http.exchange import Exchange
from controlplane.gateway.http.shape import ApiShape
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.ports import KeyStanding, LedgerAway, Room
from controlplane.gateway.refusal import UNAVAILABLE, Refusal, over_budget
from controlplane.gateway.results import Asked, Prepared
from controlplane.gateway.s1_admission.admit import read_ask
from controlplane.gateway.s1_admission.authenticate import authenticate, check_scopes
from controlplane.gateway.s1_admission.hold import bound_nano, ledger_away, prompt_bound
from controlplane.gateway.s1_admission.limits import estimate_tokens
from controlplane.gateway.s2_balance.balance import balance
from controlplane.gateway.s4_route.prefix import find_overlap, sought_of
from controlplane.gateway.task import RequestTask
from controlplane.kernel.insights.fixes import client_of
from controlplane.kernel.insights.hygiene import WasteFinding, find_waste
from controlplane.kernel.money import usd_text
from controlplane.kernel.price import Price, TokenCounts, charge_nano, hold_nano
from controlplane.kernel.receipt import Miss
from inference.contract.frames import BYTES_PER_TOKEN, Usage


class Way(msgspec.Struct, frozen=True):
    """Where it would go; `cached_tokens` is the most that any node there has."""

    prepared: Prepared
    cached_tokens: int
    miss: Miss | None


class Met(msgspec.Struct, frozen=True):
    """What stands in its way besides the model: refusals, limits and budgets; and its past."""

    refusals: tuple[Refusal, ...]
    rooms: tuple[Room, ...]
    standing: KeyStanding
    past: Past


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What a request would meet. `refusals` are the answers that it would get instead, worst first.

    `prompt_tokens` is a bound where `counted` is False. `held_nano` is what would be reserved,
    `prompt_nano` what its prompt would cost, `most_nano` that and the longest answer. `client` is
    the one that asks, for whom fixes are told.
    """

    ask: Ask
    client: str
    route: str
    step: PlannedStep
    way: Way | None
    prompt_tokens: int
    counted: bool
    cached_tokens: int
    output_tokens: int
    held_nano: int
    prompt_nano: int
    most_nano: int
    estimated_tokens: int
    refusals: tuple[Refusal, ...]
    rooms: tuple[Room, ...]
    binding: tuple[Room, ...]
    standing: KeyStanding
    findings: tuple[WasteFinding, ...]


async def preflight(call: Call, exchange: Exchange, shape: ApiShape, state: AppState) -> Forecast:
    """Look ahead; raises `Refusal` for a body that no request could have, and for a bad key."""
    key = authenticate(call, state.keys)
    check_scopes(call, key, shape.endpoint, state.places)
    # Before its turn: a body that comes slowly must not take everybody's.
    asked = await read_ask(call, exchange, shape.parse, state, key=key)
    with closing(asked), state.preflights.turn(key.id):
        way, refusals = await _way(call, asked, shape.task(call, asked, state), state)
        try:
            standing = await state.standings.of(key.id)
        except LedgerAway as error:
            raise ledger_away() from error
        met = Met(
            refusals,
            await state.limiter.look(asked.key),
            standing,
            state.hygiene.past(marks_of(key.id, asked.ask)),
        )
        return _forecast(asked, way, met, client=client_of(call.header(USER_AGENT)))


async def count_tokens(call: Call, exchange: Exchange, shape: ApiShape, state: AppState) -> int:
    """Of the prompt; about as many where the tokenizer is not here. Raises `Refusal`."""
    key = authenticate(call, state.keys)
    check_scopes(call, key, shape.endpoint, state.places)
    asked = await read_ask(call, exchange, shape.parse, state, key=key)
    model = asked.plan.steps[0].model
    with closing(asked), state.preflights.turn(key.id):
        tokens = await shape.task(call, asked, state).count(model)
    served = state.fleet.models().get(model.name)
    if served is not None and served.text is None and tokens == prompt_bound(asked.ask, model):
        seen = model.seen_tokens(len(asked.ask.pictures))
        return -(-asked.ask.bytes // BYTES_PER_TOKEN) + seen
    return tokens


async def _way(
    call: Call, asked: Asked, task: RequestTask, state: AppState
) -> tuple[Way | None, tuple[Refusal, ...]]:
    """The first step that could serve it now; none, and why, where none can."""
    for step in asked.plan.steps:
        try:
            cluster = balance(call, asked.ask, step, state)
            prepared = Prepared(step, cluster, await task.tokenize(step, cluster))
            return _placed(call, asked, prepared, state), ()
        except Refusal as refusal:
            last = refusal
            if refusal.status != UNAVAILABLE and not asked.plan.passes(refusal.code):
                break
    return None, (last,)


def _placed(call: Call, asked: Asked, prepared: Prepared, state: AppState) -> Way:
    """The most of the prompt that a node has cached, and why not more."""
    cluster = prepared.cluster
    roster = state.routing.roster(cluster.nodes)
    sought = sought_of(asked, prepared)
    overlap = find_overlap(call, sought, state.fleet, state.routing, roster=roster)
    cached = overlap.most
    link = cluster.nodes[list(overlap.cached).index(cached)]
    reuse = Reuse(delivered=cached, predicted=cached, available=cached)
    inquiry = inquiry_of(asked, prepared, link, reuse)
    miss = None
    if inquiry is not None:
        # Nothing of the prompt is told, since nobody has paid for it.
        prompted = msgspec.structs.replace(inquiry.prompted, content=False)
        miss = state.misses.foresee(msgspec.structs.replace(inquiry, prompted=prompted))
    return Way(prepared, cached, miss)


def _forecast(asked: Asked, way: Way | None, met: Met, *, client: str) -> Forecast:
    ask, plan = asked.ask, asked.plan
    step = plan.steps[0] if way is None else way.prepared.step
    counted = way is not None and bool(way.prepared.prompt.tokens)
    tokens, output = prompt_bound(ask, step.model), step.output_tokens
    if way is not None and counted:
        tokens, output = len(way.prepared.prompt.tokens), way.prepared.prompt.output_tokens
    cached = 0 if way is None else way.cached_tokens
    output *= ask.sampling.n
    price = step.model.price
    exact = hold_nano(price, tokens, step.output_tokens * ask.sampling.n)
    held = bound_nano(ask, plan)
    left = min((budget.left_nano for budget in met.standing.budgets), default=None)
    if left is not None and held > left:
        # As stage 1 does: the bound first, then what was counted.
        held = min(held, exact)
    most = max(one.output_tokens for one in plan.steps) * ask.sampling.n
    estimated = estimate_tokens(ask.bytes, most)
    binding = tuple(room for room in met.rooms if _binds(room, estimated))
    money = [_short(held, left)] if left is not None and held > left else []
    return Forecast(
        ask=ask,
        client=client,
        route=plan.label,
        step=step,
        way=way,
        prompt_tokens=tokens,
        counted=counted,
        cached_tokens=cached,
        output_tokens=output,
        held_nano=held,
        prompt_nano=_prompt_nano(price, tokens, cached),
        most_nano=_prompt_nano(price, tokens, cached) + _output_nano(price, output),
        estimated_tokens=estimated,
        refusals=(*(_limited(room) for room in binding), *money, *met.refusals),
        rooms=met.rooms,
        binding=binding,
        standing=met.standing,
        findings=find_waste(
            look_of(
                asked,
                step.model,
                # As of a served request whose answer was as long as it may get.
                Usage(prompt_tokens=tokens, cached_tokens=cached, completion_tokens=output),
                None if way is None else way.miss,
                met.past,
            )
        ),
    )


def _binds(room: Room, tokens: int) -> bool:
    """Whether it would refuse this request now."""
    return room.remaining < (tokens if room.dimension == "tokens" else 1)


def _limited(room: Room) -> Refusal:
    whose = "end user" if room.scope == "user" else room.scope
    message = (
        f"The {whose}'s limit of {room.limit} {room.dimension} has {room.remaining} left; it "
        f"resets in {room.reset_s:.0f} s."
    )
    return Refusal(429, "rate_limit_exceeded", message, kind="requests")


def _short(held: int, left: int) -> Refusal:
    return over_budget(
        f"It would reserve {usd_text(held)} USD; the narrowest budget has {usd_text(left)} left."
    )


def _prompt_nano(price: Price, tokens: int, cached: int) -> int:
    return charge_nano(price, TokenCounts.from_usage(tokens, min(cached, tokens), 0))


def _output_nano(price: Price, tokens: int) -> int:
    return charge_nano(price, TokenCounts(uncached=0, cached=0, output=tokens))
