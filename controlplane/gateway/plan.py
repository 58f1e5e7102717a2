"""Which model and pool serve a request, and which follow when those cannot: its rule, applied.

Stage 1 makes the plan, the pipeline walks its steps. A request that no rule matches has one step:
the model that it names.
"""

from collections.abc import Collection, Sequence

import msgspec
from msgspec import structs

from controlplane.gateway.ask import Ask
from controlplane.gateway.refusal import (
    CONTENT_FILTER,
    Refusal,
    bad_field,
    misdirected,
    model_not_allowed,
    rule_not_allowed,
    unknown_model,
)
from controlplane.gateway.sizing import SizedPrompt, SizeMemory, choose_size
from controlplane.gateway.snapshot import KeyRecord, ModelRecord, Snapshot
from controlplane.kernel import rules
from controlplane.kernel.receipt import PassedStep, SizeChoice
from inference.contract.frames import BYTES_PER_TOKEN
from inference.contract.places import takes

NOT_ALLOWED, POOL_ELSEWHERE = "model_not_allowed", "pool_elsewhere"
NOT_FOUND = "model_not_found"
TOO_LONG = "context_length_exceeded"
TASK_MISMATCH = "model_task_mismatch"
# What one model of a client's own list cannot do, another may.
LISTED_PASS = frozenset({TOO_LONG, CONTENT_FILTER, TASK_MISMATCH, "unsupported_parameter"})
# A smaller size class serves what takes at most this share of its model's window, by the size of
# the body: how many tokens that is only the model's own tokenizer will tell.
WINDOW_SHARE = 0.75
# What a model of each task does, and where that is asked for.
_DOES = {
    "embed": ("is an embedding model and does not generate text", "/v1/embeddings"),
    "generate": ("is a generation model and does not create {}", "an embedding model"),
}


class PlannedStep(msgspec.Struct, frozen=True):
    """One model in one pool; `number` counts from 1, as in the rule.

    `output_tokens` bounds each choice, `queue_s` the wait for room.
    """

    number: int
    model: ModelRecord
    pool: str
    queue_s: float
    output_tokens: int


class RoutePlan(msgspec.Struct, frozen=True):
    """The steps in their order, at least one; `unfit` were left out before any was tried. Of some
    that are `listed` the client named the models. `sized` is there where the rule has size classes.
    """

    rule: rules.RouteRule | None
    priority: int
    steps: tuple[PlannedStep, ...]
    unfit: tuple[PassedStep, ...] = ()
    listed: bool = False
    sized: SizedPrompt | None = None

    @property
    def label(self) -> str:
        """Name and version of the rule; `direct` where the model was named itself."""
        return rules.DIRECT if self.rule is None else self.rule.label

    def passes(self, code: str | None) -> bool:
        """Whether what a step's model refuses with this code is the next step's to answer."""
        rule = self.rule
        if self.listed:
            return code in LISTED_PASS
        if code == TOO_LONG:
            return rule is not None and rule.on_too_long
        return code == CONTENT_FILTER and rule is not None and rule.on_content_filter

    def pools(self, model: str) -> set[str]:
        """Whose nodes may be given the request for a model."""
        return {step.pool for step in self.steps if step.model.name == model}


def make_plan(
    request: bytes,
    ask: Ask,
    key: KeyRecord,
    snapshot: Snapshot,
    sizes: SizeMemory | None = None,
) -> RoutePlan:
    """What the model leads to that a client names, and then those that it lists besides; raises
    `Refusal`, also for one of a list that the key may not use, or that is not known. `sizes` knows
    what retries are moved up from.
    """
    if not ask.fallbacks:
        return _priced(_plan_of(request, ask, key, snapshot, sizes), key.project)
    plans: list[RoutePlan] = []
    lacks: list[Refusal] = []
    unfit: list[PassedStep] = []
    before = 0
    for name in dict.fromkeys((ask.model, *ask.fallbacks)):
        try:
            plan = _plan_of(request, structs.replace(ask, model=name), key, snapshot, sizes)
        except Refusal as refusal:
            if name != ask.model and refusal.param == "model":
                refusal.param = f"models[{ask.fallbacks.index(name)}]"
            known = name in snapshot.model_names or name in snapshot.aliases
            if refusal.code == NOT_ALLOWED or (refusal.code == NOT_FOUND and not known):
                raise
            lacks.append(refusal)
            before += 1
            unfit.append(PassedStep(before, name, "", refusal.code or refusal.param or ""))
            continue
        unfit += (structs.replace(each, step=before + each.step) for each in plan.unfit)
        moved = tuple(structs.replace(each, number=before + each.number) for each in plan.steps)
        plans.append(structs.replace(plan, steps=moved))
        before += max(each.number for each in plan.steps)
    if not plans:
        raise lacks[0]
    steps = tuple(step for plan in plans for step in plan.steps)
    whole = structs.replace(plans[0], steps=steps, unfit=tuple(unfit), listed=True)
    return _priced(whole, key.project)


def _plan_of(
    request: bytes,
    ask: Ask,
    key: KeyRecord,
    snapshot: Snapshot,
    sizes: SizeMemory | None,
) -> RoutePlan:
    """Apply the first rule that matches; raises `Refusal`.

    The key's models bound what a client may name, and where rules send it unless they widen it.
    The first step whose model is in service must fit the request; later ones that do not are left
    out.
    """
    if key.models is not None and ask.model not in key.models:
        raise model_not_allowed(ask.model)
    if not snapshot.rules and snapshot.candidate is None:
        return _direct(ask, key, snapshot)
    facts = _facts(ask, key)
    rule, draw = snapshot.book.rule_for(facts, rules.draw_of(request))
    if rule is None:
        return _direct(ask, key, snapshot)
    sized = choose_size(ask, rule, key, snapshot.projects[key.project].salt, sizes)
    steps: list[PlannedStep] = []
    unfit: list[PassedStep] = []
    for number, step in enumerate(rule.steps, start=1):
        targets = rules.open_targets(rule, step, facts, snapshot.model_names)
        if not targets:
            unfit.append(_not_allowed(number, step))
            continue
        if sized is not None:
            targets, choice = _of_size(targets, draw, sized.choice, ask, snapshot)
            sized = sized if steps else structs.replace(sized, choice=choice)
        target = rules.pick_target(targets, draw)
        try:
            steps.append(_planned(number, target, step.queue_s, ask, snapshot))
        except Refusal as refusal:
            if not steps and target.model in snapshot.models:
                raise
            reason = refusal.code or refusal.param or ""
            unfit.append(PassedStep(number, target.model, target.pool or "", reason))
    if not steps:
        closed = any(each.reason == NOT_ALLOWED for each in unfit)
        raise rule_not_allowed(ask.model) if closed else unknown_model(ask.model)
    priority = key.priority if rule.priority is None or key.batch else rule.priority
    return RoutePlan(rule, priority, tuple(steps), tuple(unfit), sized=sized)


def within(plan: RoutePlan, pools: Collection[str]) -> RoutePlan:
    """The plan without later steps in pools of other gateways; raises `Refusal` for the first."""
    here = tuple(step for step in plan.steps if takes(pools, step.pool))
    if len(here) == len(plan.steps):
        return plan
    if here[:1] != plan.steps[:1]:
        raise misdirected(plan.steps[0].model.name)
    unfit = (
        PassedStep(step.number, step.model.name, step.pool, POOL_ELSEWHERE)
        for step in plan.steps
        if not takes(pools, step.pool)
    )
    return structs.replace(plan, steps=here, unfit=(*plan.unfit, *unfit))


def _direct(ask: Ask, key: KeyRecord, snapshot: Snapshot) -> RoutePlan:
    """The model that was named, and nothing after it."""
    only = _planned(1, rules.Target(model=ask.model), rules.QUEUE_S_DEFAULT, ask, snapshot)
    return RoutePlan(None, key.priority, (only,))


def _of_size(
    targets: Sequence[rules.Target],
    draw: float,
    choice: SizeChoice,
    ask: Ask,
    snapshot: Snapshot,
) -> tuple[tuple[rules.Target, ...], SizeChoice]:
    """The targets of the size class that serves, or of the first larger one that the request fits,
    else the largest, unless it named the class itself; and the choice with its models.
    """
    first = {
        each: rules.pick_target(rules.class_targets(targets, each), draw).model
        for each in rules.SIZE_CLASSES
    }
    served, by = choice.served, choice.by
    if by != "request":
        larger = rules.SIZE_CLASSES[rules.SIZE_CLASSES.index(served) :]
        fitting = (each for each in larger if _fits(first[each], ask, snapshot))
        served = next(fitting, rules.LARGEST)
        by = by if served == choice.served else "bounds"
    told = structs.replace(
        choice, served=served, by=by, model=first[choice.chosen], largest=first[rules.LARGEST]
    )
    return rules.class_targets(targets, served), told


def _fits(name: str, ask: Ask, snapshot: Snapshot) -> bool:
    """Whether the model may be asked for as much, and does what is asked."""
    try:
        step = _planned(0, rules.Target(model=name), 0.0, ask, snapshot)
    except Refusal:
        return False
    tokens = ask.bytes // BYTES_PER_TOKEN + step.output_tokens
    return tokens <= WINDOW_SHARE * step.model.context_window


def _not_allowed(number: int, step: rules.Step) -> PassedStep:
    first = step.targets[0]
    return PassedStep(number, first.model, first.pool or "", NOT_ALLOWED)


def _facts(ask: Ask, key: KeyRecord) -> rules.Facts:
    return rules.Facts(
        alias=ask.model,
        task=_task(ask),
        organization=key.organization,
        project=key.project,
        tags=key.tags,
        prompt_tokens=ask.bytes // BYTES_PER_TOKEN,
        priority=key.priority,
        models=key.models,
    )


def _planned(
    number: int, target: rules.Target, queue_s: float, ask: Ask, snapshot: Snapshot
) -> PlannedStep:
    """The step, if its model is in service and does what is asked; raises `Refusal`."""
    model = snapshot.models.get(target.model)
    if model is None:
        raise unknown_model(ask.model)
    if model.task != _task(ask) and not ask.operation.endswith("tokenize"):
        does, other = _DOES[model.task]
        made = "embeddings" if ask.operation == "embedding" else "scores"
        message = f"'{ask.model}' {does.format(made)}; use {other}."
        raise bad_field("model", message, TASK_MISMATCH)
    if (shown := ask.pictures) and len(shown) > model.images_max:
        field, most = shown[model.images_max].field, model.images_max
        several = f"{model.name} takes at most {most} images in a request."
        raise bad_field(field, several if most else "This model does not accept image parts.")
    return PlannedStep(number, model, target.pool or model.pool, queue_s, _output_bound(ask, model))


def _priced(plan: RoutePlan, project: str) -> RoutePlan:
    """The plan at the prices that this request pays, which hold however long it takes: all of its
    steps at the one priority by which it waits.
    """
    steps = tuple([_priced_step(step, project, plan.priority) for step in plan.steps])
    return structs.replace(plan, steps=steps)


def _priced_step(step: PlannedStep, project: str, priority: int) -> PlannedStep:
    price = step.model.price_for(project, priority)
    if price is step.model.price:
        return step
    return structs.replace(step, model=structs.replace(step.model, price=price))


def _task(ask: Ask) -> str:
    return "generate" if ask.inputs is None else "embed"


def _output_bound(ask: Ask, model: ModelRecord) -> int:
    if ask.inputs is not None:
        return 0
    if ask.output_tokens is None:
        return model.output_tokens_default
    if ask.output_tokens > model.output_tokens_max:
        if ask.caps_output:
            return model.output_tokens_max
        raise bad_field(
            ask.output_field,
            f"'{ask.output_field}' is {ask.output_tokens}; {model.name} generates at most"
            f" {model.output_tokens_max} tokens per choice.",
        )
    return ask.output_tokens
