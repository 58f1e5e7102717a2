"""The life of a version of the rules, each step audited: draft, trial, publication, return.

All steps take one lock, so that versions count up without gaps and no two are in force. History
only grows: a rollback publishes a copy of an earlier version under a new number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.db.models import Max
from django.utils import timezone

from controlplane.core.audit import Actor, audit_record
from controlplane.core.conflict import Conflict
from controlplane.core.permissions import Action
from controlplane.kernel.rules import PERMILLE, RouteRule
from controlplane.routing.models import NOTE_CHARS_MAX, RuleSet, State
from controlplane.routing.rulesjson import read_rules, write_rules
from controlplane.routing.selectors import (
    rule_problems,
    ruleset_before,
    ruleset_in_force,
    ruleset_on_trial,
)
from controlplane.tenants.access import require
from controlplane.tenants.models import User


def ruleset_draft_create(*, actor: Actor, rules: object, note: str = "") -> RuleSet:
    """A draft of the next version, begun from what is in force now; it need not be valid yet."""
    require(actor, Action.ROUTING_MANAGE)
    read = read_rules(rules)
    with _alone():
        made = _create(actor, read, note, based_on=ruleset_in_force())
        _audit(actor, "ruleset.draft_create", made, _names(read))
    return made


def ruleset_draft_update(
    *, actor: Actor, rule_set: RuleSet, rules: object, note: str, rebase: int | None = None
) -> RuleSet:
    """Change a draft; raises Conflict where it was changed since `rule_set` was read.

    `rebase` is the version that the draft was compared with; it must be the one in force.
    """
    require(actor, Action.ROUTING_MANAGE)
    read = read_rules(rules)
    with _alone():
        now = _state(rule_set, State.DRAFT)
        if now.revision != rule_set.revision:
            raise Conflict({"revision": "Somebody changed this draft meanwhile: look again."})
        now.rules, now.note, now.revision = write_rules(read), _note(note), now.revision + 1
        if rebase is not None:
            now.based_on = _compared(rebase)
        now.save(update_fields=["rules", "note", "revision", "based_on"])
        _audit(actor, "ruleset.draft_update", now, _names(read))
    return now


def ruleset_draft_discard(*, actor: Actor, rule_set: RuleSet) -> RuleSet:
    """Give a draft up; it stays readable."""
    require(actor, Action.ROUTING_MANAGE)
    with _alone():
        now = _retire(_state(rule_set, State.DRAFT))
        _audit(actor, "ruleset.draft_discard", now)
    return now


def ruleset_publish(*, actor: Actor, rule_set: RuleSet) -> RuleSet:
    """Put a draft in force whole; raises Conflict if it was not begun from what is in force."""
    require(actor, Action.ROUTING_MANAGE)
    with _alone():
        now = _ready(actor, rule_set)
        before = _put_in_force(now)
        _audit(actor, "ruleset.publish", now, before=before.version if before else None)
    return now


def ruleset_canary_start(
    *, actor: Actor, rule_set: RuleSet, share_permille: int, stops_itself: bool = False
) -> RuleSet:
    """Let a share of all requests follow a draft, or change the share of the canary.

    `stops_itself` lets the watch end it when its errors are clearly worse.
    """
    require(actor, Action.ROUTING_MANAGE)
    if not 1 <= share_permille < PERMILLE:
        raise ValidationError({"share_permille": f"Must be 1 to {PERMILLE - 1} per mille."})
    with _alone():
        running = ruleset_on_trial()
        now = running if running and running.id == rule_set.id else _ready(actor, rule_set)
        # A new share makes the requests so far another mixture: the comparison begins again.
        now.state, now.canary_at = State.CANARY, timezone.now()
        now.share_permille, now.stops_itself = share_permille, stops_itself
        now.save(update_fields=["state", "canary_at", "share_permille", "stops_itself"])
        _audit(actor, "ruleset.canary_start", now, share_permille=share_permille)
    return now


def ruleset_canary_promote(*, actor: Actor, rule_set: RuleSet) -> RuleSet:
    """Put the canary in force for all requests."""
    require(actor, Action.ROUTING_MANAGE)
    with _alone():
        now = _state(rule_set, State.CANARY)
        _refuse_problems(actor, now)
        before = _put_in_force(now)
        _audit(actor, "ruleset.canary_promote", now, before=before.version if before else None)
    return now


def ruleset_canary_stop(*, actor: Actor, rule_set: RuleSet, reason: str = "") -> RuleSet:
    """End the trial: all requests follow the published rules again."""
    require(actor, Action.ROUTING_MANAGE)
    with _alone():
        now = _retire(_state(rule_set, State.CANARY))
        _audit(actor, "ruleset.canary_stop", now, reason=_note(reason))
    return now


def ruleset_rollback(
    *, actor: Actor, to: RuleSet | None = None, to_no_rules: bool = False
) -> RuleSet:
    """Publish a copy of the version before the present one, or of `to`; a canary ends with it.

    Before the first version there were no rules, so the way back from it, or `to_no_rules`, is a
    version without any. Raises Conflict where nothing is published or no rules are in force.
    """
    require(actor, Action.ROUTING_MANAGE)
    with _alone():
        current = ruleset_in_force()
        target = to or (ruleset_before(current) if current and not to_no_rules else None)
        if current is None or (target is not None and target.published_at is None):
            raise Conflict({"version": "There is no earlier version to go back to."})
        if target is None and not current.rules:
            raise Conflict({"version": "No rules are in force already."})
        canary = ruleset_on_trial()
        if canary is not None:
            _retire(canary)
        read = read_rules(target.rules if target else [])
        origin = (target.copy_of or target) if target else None
        note = f"back to version {origin.version}" if origin else "back to no rules"
        made = _create(actor, read, note, based_on=current, copy_of=origin)
        _refuse_problems(actor, made)
        _put_in_force(made)
        ended = canary.version if canary else None
        _audit(actor, "ruleset.rollback", made, before=current.version, canary_ended=ended)
    return made


@contextmanager
def _alone() -> Iterator[None]:
    with transaction.atomic():
        with connection.cursor() as cursor:
            # Versions count up without gaps; readers are not held up.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext('rule_sets'))")
        yield


def _create(
    actor: Actor,
    rules: Sequence[RouteRule],
    note: str,
    *,
    based_on: RuleSet | None,
    copy_of: RuleSet | None = None,
) -> RuleSet:
    last = RuleSet.objects.aggregate(last=Max("version"))["last"]
    return RuleSet.objects.create(
        version=(last or 0) + 1,
        note=_note(note),
        rules=write_rules(rules),
        based_on=based_on,
        copy_of=copy_of,
        created_by=actor if isinstance(actor, User) else None,
    )


def _state(rule_set: RuleSet, state: State) -> RuleSet:
    """The version as it is now, if it is in `state`; raises Conflict."""
    now = RuleSet.objects.get(id=rule_set.id)
    if now.state != state:
        raise Conflict({"state": f"Version {now.version} is {now.state}, not {state.value}."})
    return now


def _compared(version: int) -> RuleSet:
    current = ruleset_in_force()
    if current is None or current.version != version:
        told = f"Version {current.version}" if current else "No version"
        raise Conflict({"rebase": f"{told} is in force now: compare the draft with that."})
    return current


def _ready(actor: Actor, rule_set: RuleSet) -> RuleSet:
    """A draft that may be followed; raises Conflict and ValidationError."""
    now = _state(rule_set, State.DRAFT)
    canary, current = ruleset_on_trial(), ruleset_in_force()
    if canary is not None:
        message = f"Version {canary.version} is on trial: promote or stop it first."
        raise Conflict({"state": message})
    if now.based_on_id != (current.id if current else None):
        told = current.version if current else "none"
        message = f"Version {told} was published since this draft was begun: compare and save it."
        raise Conflict({"based_on": message})
    if now.revision != rule_set.revision:
        raise Conflict({"revision": "Somebody changed this draft meanwhile: look again."})
    _refuse_problems(actor, now)
    return now


def _refuse_problems(actor: Actor, rule_set: RuleSet) -> None:
    errors: dict[str, list[str]] = {}
    for problem in rule_problems(actor=actor, rules=read_rules(rule_set.rules)):
        if not problem.warning:
            errors.setdefault(problem.field, []).append(problem.message)
    if errors:
        raise ValidationError(errors)


def _put_in_force(rule_set: RuleSet) -> RuleSet | None:
    before = ruleset_in_force()
    if before is not None:
        _retire(before)
    rule_set.state, rule_set.published_at = State.PUBLISHED, timezone.now()
    rule_set.share_permille = 0
    rule_set.save(update_fields=["state", "published_at", "share_permille"])
    return before


def _retire(rule_set: RuleSet) -> RuleSet:
    rule_set.state, rule_set.retired_at = State.RETIRED, timezone.now()
    rule_set.save(update_fields=["state", "retired_at"])
    return rule_set


def _note(text: str) -> str:
    if len(text) > NOTE_CHARS_MAX:
        raise ValidationError({"note": f"At most {NOTE_CHARS_MAX} characters."})
    if not text.isprintable():
        raise ValidationError({"note": "One line of printable characters."})
    return text


def _names(rules: Sequence[RouteRule]) -> list[str]:
    return [rule.name for rule in rules]


def _audit(
    actor: Actor,
    action: str,
    rule_set: RuleSet,
    rules: list[str] | None = None,
    **more: str | int | None,
) -> None:
    detail: dict[str, str | int | bool | None | list[str]] = {"version": rule_set.version, **more}
    if rules is not None:
        detail["rules"] = rules
    audit_record(actor, action, subject=rule_set, organization_id=None, detail=detail)
