"""`POST /v1/preflight`: what a chat completion would meet, found without running it.

It takes the steps of stages 1 to 4 that decide and leaves out those that do: nothing is counted,
held, remembered or sent to a node. Encoding costs the gateway time, so each key has a bound.
"""

from __future__ import annotations

import msgspec

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.misses.explain import Miss, Offered
from controlplane.gateway.misses.teller import Prompted, tenant_of
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.ports import LedgerAway, Room, Standing
from controlplane.gateway.refusal import UNAVAILABLE, Refusal, over_budget
from controlplane.gateway.routing.sought import Sought
from controlplane.gateway.s1_admission.admit import Asked, read_ask
from controlplane.gateway.s1_admission.authenticate import authenticate, check_scopes
from controlplane.gateway.s1_admission.body import Receive
from controlplane.gateway.s1_admission.hold import bound_nano, ledger_away, prompt_bound
from controlplane.gateway.s1_admission.limits import estimate_tokens
from controlplane.gateway.s1_admission.schema import Parse
from controlplane.gateway.s2_balance.balance import Cluster, balance
from controlplane.gateway.s3_tokenize.assemble import assemble
from controlplane.gateway.s3_tokenize.tokenize import Prompt, encode_ask, tokenize
from controlplane.gateway.s3_tokenize.window import Room as Window
from controlplane.gateway.s4_route.prefix import find_overlap
from controlplane.gateway.waste import texts_of, volatile_of
from controlplane.gateway.world import World
from controlplane.kernel.hygiene import Finding, Look, find_waste
from controlplane.kernel.money import usd_text
from controlplane.kernel.price import Price, TokenCounts, charge_nano, hold_nano


class Way(msgspec.Struct, frozen=True):
    """Where it would go; `prompt` None where only the server behind the node can count."""

    step: PlannedStep
    cluster: Cluster
    prompt: Prompt | None
    cached_tokens: int
    miss: Miss | None


class Met(msgspec.Struct, frozen=True):
    """What stands in its way besides the model: refusals, limits and budgets; and its past."""

    refusals: tuple[Refusal, ...]
    rooms: tuple[Room, ...]
    standing: Standing
    repeated: bool


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What a request would meet. `refusals` are the answers that it would get instead, worst first.

    `prompt_tokens` is a bound where `counted` is False. `held_nano` is what would be reserved,
    `prompt_nano` what its prompt would cost, `most_nano` that and the longest answer.
    """

    ask: Ask
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
    standing: Standing
    findings: tuple[Finding, ...]


async def preflight(call: Call, receive: Receive, parse: Parse, world: World) -> Forecast:
    """Look ahead; raises `Refusal` for a body that no request could have, and for a bad key."""
    key = authenticate(call, world.keys)
    check_scopes(call, key, "chat", world.places)
    # Before its turn: a body that comes slowly must not take everybody's.
    asked = await read_ask(call, receive, parse, world, key=key)
    with world.preflights.turn(key.id):
        way, refusals = await _way(call, asked, world)
        try:
            standing = await world.standings.of(key.id)
        except LedgerAway as error:
            raise ledger_away() from error
        met = Met(
            refusals,
            await world.limiter.look(key),
            standing,
            repeated=world.hygiene.has_come(key.id, asked.ask),
        )
        return _forecast(asked, way, met)


async def _way(call: Call, asked: Asked, world: World) -> tuple[Way | None, tuple[Refusal, ...]]:
    """The first step that could serve it now; none, and why, where none can."""
    for step in asked.plan.steps:
        try:
            return await _step(call, asked, step, world), ()
        except Refusal as refusal:
            last = refusal
            if refusal.status != UNAVAILABLE:
                break
    return None, (last,)


async def _step(call: Call, asked: Asked, step: PlannedStep, world: World) -> Way:
    cluster = balance(
        call,
        step,
        world.fleet,
        client_region=world.places.region_of(call),
        own_region=world.region,
        grammar_field=asked.ask.grammar_field,
    )
    text = cluster.served.text
    if text is None:
        return Way(step, cluster, None, 0, None)
    ask = assemble(call, asked.ask)
    tokens = await encode_ask(call, ask, text, window_tokens=step.model.context_window)
    prompt = tokenize(
        call,
        ask,
        tokens,
        room=Window(
            window_tokens=min(step.model.context_window, cluster.served.context_window),
            output_tokens=step.output_tokens,
        ),
        block_sizes=[link.hello.block_size for link in cluster.nodes],
        salt=asked.snapshot.projects[asked.key.project].salt,
    )
    sought = Sought(
        model=step.model.name,
        rule=asked.plan.label,
        tokens=len(tokens),
        chains=prompt.chains,
        text=b"",
    )
    roster = world.routing.roster(cluster.nodes)
    overlap = find_overlap(call, sought, world.fleet, world.routing, roster=roster)
    place = max(range(len(overlap.cached)), key=overlap.cached.__getitem__)
    link, cached = cluster.nodes[place], overlap.cached[place]
    miss = world.misses.foresee(
        Prompted(
            tenant=tenant_of(prompt.salt, cluster.served.digest, step.model.name),
            tokens=tokens,
            chains=prompt.chains,
            tools=tuple(tool["function"]["name"] for tool in asked.ask.tools),
            text=text,
            content=False,
        ),
        Offered(
            caches=link.caches_prefixes,
            block_size=link.hello.block_size,
            prompt=len(tokens),
            delivered=cached,
            predicted=cached,
            available=cached,
        ),
        price=step.model.price,
        prefill_tokens_per_s=link.account.speed.prefill_tokens_per_s,
    )
    return Way(step, cluster, prompt, cached, miss)


def _forecast(asked: Asked, way: Way | None, met: Met) -> Forecast:
    ask, plan = asked.ask, asked.plan
    step = plan.steps[0] if way is None else way.step
    prompt = None if way is None else way.prompt
    tokens = prompt_bound(ask, step.model) if prompt is None else len(prompt.tokens)
    cached = 0 if way is None else way.cached_tokens
    output = (step.output_tokens if prompt is None else prompt.output_tokens) * ask.sampling.n
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
        route=plan.label,
        step=step,
        way=way,
        prompt_tokens=tokens,
        counted=prompt is not None,
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
        findings=find_waste(_look(ask, step, way, (tokens, output), repeated=met.repeated)),
    )


def _look(
    ask: Ask, step: PlannedStep, way: Way | None, tokens: tuple[int, int], *, repeated: bool
) -> Look:
    """As of a served request whose answer was as long as it may get."""
    prompt_tokens, output_tokens = tokens
    volatile_tokens, volatile_nano = volatile_of(way.miss if way else None)
    return Look(
        texts=texts_of(ask),
        prompt_tokens=prompt_tokens,
        cached_tokens=way.cached_tokens if way else 0,
        window_tokens=step.model.context_window,
        output_tokens=output_tokens,
        named_bound=ask.output_tokens is not None,
        price=step.model.price,
        volatile_tokens=volatile_tokens,
        volatile_nano=volatile_nano,
        repeated=repeated,
    )


def _binds(room: Room, tokens: int) -> bool:
    """Whether it would refuse this request now."""
    return room.remaining < (tokens if room.dimension == "tokens" else 1)


def _limited(room: Room) -> Refusal:
    message = (
        f"The {room.scope}'s limit of {room.limit} {room.dimension} has {room.remaining} left;"
        f" it is whole again in {room.reset_s:.0f} s."
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
