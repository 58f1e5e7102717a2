"""Reserve the upper bound of what a request can cost, before anything is spent on it.

The first bound needs no tokenizer: no token is shorter than one byte, and no prompt that is served
is longer than the context window. Only if that does not fit are the tokens counted exactly.
Where a plan has several models, the dearest of them is held for.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import blake2b
from uuid import UUID

import msgspec

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.plan import PlannedStep, RoutePlan
from controlplane.gateway.ports import (
    BudgetExceeded,
    BudgetRoom,
    Hold,
    Ledger,
    LedgerAway,
    Standings,
)
from controlplane.gateway.refusal import Refusal, over_budget, unavailable
from controlplane.gateway.snapshot import KeyRecord, ModelRecord, ProjectRecord
from controlplane.kernel.limits import ReachedLimit
from controlplane.kernel.money import usd_text
from controlplane.kernel.price import hold_nano
from controlplane.kernel.spans import INDEX
from inference.contract.frames import INPUTS_TOKENS_MAX

HOLD = INDEX["s1_admission.hold"]
TEMPLATE_TOKENS_PER_TURN = 8
TEMPLATE_TOKENS = 16
SPECIAL_TOKENS_PER_INPUT = 4
CHAR_BYTES_MAX = 4
HOLD_GRACE_S = 120
LEDGER_RETRY_S = 1
# A refusal waits this long for the figures of the key's budget, then goes out without them.
STANDING_S_MAX = 1.0

ExactNano = Callable[[], Awaitable[int]]
CountPrompt = Callable[[ModelRecord], Awaitable[int]]


def prompt_bound(ask: Ask, model: ModelRecord) -> int:
    """Most prompt tokens that this body can become, without counting them.

    Templates spell tools out at a length of their own, so with those only the window is a bound.
    """
    if ask.speaks_of_tools:
        return model.context_window
    if count := len(ask.prompts if ask.inputs is None else ask.inputs):
        pairs = ask.inputs is not None and ask.inputs.pairs
        # Of pairs, each may hold the first text again.
        again = CHAR_BYTES_MAX * len(ask.inputs.texts[0]) * count if ask.inputs and pairs else 0
        whole = ask.bytes + again + SPECIAL_TOKENS_PER_INPUT * count
        return min(whole, model.context_window * count, INPUTS_TOKENS_MAX)
    messages = len(ask.turns) + (len(ask.assembly.body.messages) if ask.assembly else 0)
    allowance = TEMPLATE_TOKENS + TEMPLATE_TOKENS_PER_TURN * messages
    allowance += model.seen_tokens(len(ask.pictures))
    return min(ask.bytes + allowance, model.context_window)


class HoldTaking(msgspec.Struct, eq=False):
    """A hold that is asked for now or later; `pending` tells how that went."""

    call: Call
    hold: Hold
    ledger: Ledger
    pending: asyncio.Future[None] | None = None
    _began: int = 0

    def begin(self) -> None:
        """Ask now, before anybody waits for it; where that cannot be, whoever waits asks again."""
        self._began = self.call.spans.clock()
        with suppress(LedgerAway):
            self.pending = self.ledger.hold(self.hold)

    async def taken(self) -> None:
        """Wait until it is reserved; raises what the ledger does, with nothing reserved."""
        self._began = self._began or self.call.spans.clock()
        if self.pending is None:
            self.pending = self.ledger.hold(self.hold)
        try:
            await self.pending
        except asyncio.CancelledError:
            self.withdraw()
            raise

    def recount(self, amount_nano: int) -> None:
        """Ask for another amount the next time."""
        self.hold = msgspec.structs.replace(self.hold, amount_nano=amount_nano)
        self.pending = None

    def withdraw(self) -> None:
        """Give back what was taken; what is on its way the ledger gives back when it comes."""
        pending = self.pending
        if pending is None or pending.cancel() or pending.cancelled():
            return
        if pending.exception() is None:
            self.ledger.release(self.hold)

    def measured(self) -> None:
        self.call.spans.add(HOLD, self._began)


async def take_hold(taking: HoldTaking, standings: Standings, *, exact_nano: ExactNano) -> Hold:
    """Hold the bound, or else the exact amount; returns what was held. Raises `Refusal`."""
    bound = taking.hold
    try:
        try:
            await taking.taken()
        except BudgetExceeded:
            exact = await exact_nano()
            if exact >= bound.amount_nano:
                raise
            taking.recount(exact)
            await taking.taken()
        return taking.hold
    except BudgetExceeded as error:
        raise await _over_budget(error, bound, standings) from error
    except LedgerAway as error:
        raise ledger_away() from error
    finally:
        taking.measured()


async def _over_budget(error: BudgetExceeded, hold: Hold, standings: Standings) -> Refusal:
    """Figures are told of the key's own budget alone: whoever calls has the key, and maybe no right
    to see what its project and organization may spend.
    """
    nano = hold.amount_nano
    figures = await _own_figures(hold.key, nano, standings) if error.scope == "key" else ""
    told = _no_room(error.scope, nano, figures)
    refusal = over_budget(
        told, "too_many_end_users" if error.scope == "users" else "insufficient_quota"
    )
    refusal.limit = ReachedLimit(kind="budget", scope=error.scope, budget=error.budget, asked=nano)
    return refusal


async def _own_figures(key: str, nano: int, standings: Standings) -> str:
    """What the key's budget has left, of what, and when it resets; "" where that is not known."""
    try:
        async with asyncio.timeout(STANDING_S_MAX):
            standing = await standings.of(key, waits=False)
    except (LedgerAway, TimeoutError):
        return ""
    own = next((each for each in standing.budgets if each.scope == "key"), None)
    # A little later there may be room again.
    return "" if own is None or own.left_nano >= nano else _figures(own)


def _figures(own: BudgetRoom) -> str:
    limit = f"{usd_text(own.limit_nano)} USD"
    if own.period != "none":
        limit = f"{limit} a {own.period}"
    told = (
        f" {usd_text(own.left_nano)} USD of {limit} is left: {usd_text(own.spent_nano)} is spent "
        f"and {usd_text(own.held_nano)} is held for requests in progress."
    )
    if own.turns_at_s is None:
        return told
    return f"{told} It resets at {datetime.fromtimestamp(own.turns_at_s, UTC):%Y-%m-%dT%H:%M:%SZ}."


def _no_room(scope: str, nano: int, figures: str) -> str:
    if scope == "users":
        return "Too many end users of this project have a budget already; this one cannot get one."
    what, cure = f"The {'end user' if scope == 'user' else scope}'s budget", "raise the budget"
    if scope == "wallet":
        what, cure = "The organization's prepaid wallet", "top it up"
    return (
        f"{what} is too low for this request, which could cost up to {usd_text(nano)} USD."
        f"{figures} Lower max_tokens or {cure}."
    )


def make_hold(
    call: Call, key: KeyRecord, ask: Ask, plan: RoutePlan, *, project: ProjectRecord, grace_s: int
) -> Hold:
    """The hold for the most that any step of the plan can cost."""
    first = plan.steps[0].model
    models = {step.model.name: step.model.price for step in plan.steps[1:]}
    models.pop(first.name, None)
    budgets, users = key.budgets, None
    if project.model_budgets:
        found = (project.model_budgets.get(name) for name in (first.name, *models))
        budgets += tuple(budget for budget in found if budget is not None)
    if project.users_budget:
        users = user_budget_id(project, ask.user), project.users_budget
        budgets += users[:1]
    return Hold(
        request=call.request,
        organization=key.organization,
        project=key.project,
        key=key.id,
        budgets=budgets,
        amount_nano=bound_nano(ask, plan),
        model=first.name,
        price=first.price,
        others=models,
        expires_s=call.deadline_s + grace_s,
        user=ask.user,
        labels=project.kept(ask.labels),
        users=users,
        exactly=bool(models) and len(budgets) > len(key.budgets) + (users is not None),
    )


def user_budget_id(project: ProjectRecord, user: str) -> str:
    """The id of an end user's budget, which tells nothing of the user."""
    made = blake2b(f"{project.users_budget} {user}".encode(), key=project.salt, digest_size=16)
    return UUID(bytes=made.digest(), version=5).hex


def bound_nano(ask: Ask, plan: RoutePlan) -> int:
    """The most that any step of the plan can cost, without counting tokens."""
    return max([_nano(step, ask, prompt_bound(ask, step.model)) for step in plan.steps])


async def exact_nano(ask: Ask, plan: RoutePlan, count_prompt: CountPrompt) -> int:
    """The same with tokens counted; raises `Refusal` where the first step's model cannot, and no
    other may.
    """
    bounds = []
    for step in plan.steps:
        try:
            tokens = await count_prompt(step.model)
        except Refusal as refusal:
            if step is plan.steps[0] and not plan.passes(refusal.code):
                raise
            tokens = prompt_bound(ask, step.model)
        bounds.append(_nano(step, ask, tokens))
    return max(bounds)


def _nano(step: PlannedStep, ask: Ask, prompt_tokens: int) -> int:
    return hold_nano(step.model.price, prompt_tokens, step.output_tokens * ask.choices)


def ledger_away() -> Refusal:
    """503: no money can be held or charged just now."""
    return unavailable(
        "ledger_unavailable",
        "Billing is temporarily unavailable; nothing was charged. Try again shortly.",
        retry_after_s=LEDGER_RETRY_S,
    )
