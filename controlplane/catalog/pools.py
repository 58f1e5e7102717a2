"""Making and changing pools. What the local driver runs is the operator's alone to say."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from typing import Any

from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction

from controlplane.catalog.models import CARD_HOUR_MICRO_MAX, CARDS_PER_NODE_MAX, Model, Pool
from controlplane.catalog.selectors import pool_find, pool_list
from controlplane.catalog.warm import windows_from
from controlplane.core.audit.entries import Actor, Facts, Operator, audit_record
from controlplane.core.permissions import Action
from controlplane.tenants.access import require

COST_BOUNDS = {
    "card_hour_micro": (0, CARD_HOUR_MICRO_MAX),
    "cards_per_node": (1, CARDS_PER_NODE_MAX),
}


@dataclass(frozen=True, kw_only=True)
class PoolDraft:
    """What a pool is; the names are the table's."""

    name: str
    task: str = "generate"
    role: str = "both"
    nodes_min: int = 0
    nodes_max: int = 1
    warm_schedule: Sequence[dict[str, Any]] = field(default_factory=list)
    start_command: str = ""
    card_hour_micro: int = 0
    cards_per_node: int = 1
    separate_caches: bool = False
    plan_mode: str = "advice"


def pool_draft(name: str, values: Mapping[str, Any]) -> PoolDraft:
    """The pool of that name as it is, or a new one, with these values."""
    known = pool_find(name=name)
    before = {each.name: getattr(known, each.name) for each in fields(PoolDraft)} if known else {}
    return PoolDraft(**{**before, **values, "name": name})


def pool_known(name: str) -> Pool:
    """The pool of that name; raises ValidationError for `pool` that lists those there are."""
    pools = {pool.name: pool for pool in pool_list()}
    if name not in pools:
        known = ", ".join(pools)
        raise ValidationError({"pool": f"Pool {name!r} not found; pools are {known}."})
    return pools[name]


def serving_pool(name: str, task: str) -> Pool:
    """The pool of that name, if the gateway may send it whole requests of this task.

    Raises ValidationError for `pool`: nodes that only prefill get none.
    """
    pool = pool_known(name)
    if pool.task != task:
        raise ValidationError({"pool": f"The pool {name!r} is for the task {pool.task}."})
    if pool.prefills_only:
        raise ValidationError(
            {"pool": f"The pool {name!r} only runs prefill; choose one that decodes."}
        )
    return pool


def pool_set(*, actor: Actor, draft: PoolDraft) -> Pool:
    """Make the pool of that name, or give it these values; raises ValidationError by field.

    A command would run on the host of whoever drives the pool's nodes, so no user of the pages may
    set one: only the operator, at the command line.
    """
    require(actor, Action.FLEET_MANAGE)
    with transaction.atomic():
        pool = Pool.objects.select_for_update().filter(name=draft.name).first()
        command = pool.start_command if pool else ""
        before = _facts(pool) if pool else {}
        if draft.start_command != command and not isinstance(actor, Operator):
            raise PermissionDenied("start_command")
        made = pool or Pool(name=draft.name)
        if pool is not None and pool.task != draft.task:
            raise ValidationError(
                {"task": "The task of a pool cannot be changed; create a new pool."}
            )
        for name, value in asdict(draft).items():
            setattr(made, name, value)
        _check(made)
        made.save()
        facts = _facts(draft)
        audit_record(actor, "pool.set", subject=made, detail=facts, changed=(before, facts))
    return made


def _check(pool: Pool) -> None:
    try:
        windows = windows_from(pool.warm_schedule)
    except ValueError as error:
        raise ValidationError({"warm_schedule": str(error)}) from error
    most = max([pool.nodes_min, *(window.nodes_min for window in windows)])
    if most > pool.nodes_max:
        raise ValidationError({"nodes_max": f"{most} nodes are configured to be kept warm."})
    for name, (least, bound) in COST_BOUNDS.items():
        if not least <= getattr(pool, name) <= bound:
            raise ValidationError({name: f"Must be {least} to {bound}."})
    try:
        shlex.split(pool.start_command)
    except ValueError as error:
        raise ValidationError({"start_command": f"Not a valid command: {error}."}) from error
    pool.full_clean()
    served = Model.objects.filter(pool=pool.name).order_by("name").first()
    if pool.prefills_only and served is not None:
        raise ValidationError({"role": f"The model {served.name!r} is served from this pool."})


def _facts(pool: Pool | PoolDraft) -> Facts:
    """What the audit keeps; a command may have a secret in it, so only its hash."""
    told: Facts = {each.name: getattr(pool, each.name) for each in fields(PoolDraft)}
    command = pool.start_command
    told["start_command"] = f"sha256:{sha256(command.encode()).hexdigest()}" if command else ""
    told["warm_schedule"] = [str(window) for window in pool.warm_schedule]
    return told
