"""The life of a version, each step audited: draft, trial, publication, return.

All steps of one thing take one lock, so that its versions count up without gaps and no two are in
force. History only grows: a rollback publishes a copy of an earlier version under a new number.
"""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import ClassVar, Generic

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import Max, QuerySet
from django.utils import timezone

from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.errors.body import Conflict
from controlplane.core.versions.models import NOTE_CHARS_MAX, State, Version
from controlplane.core.versions.selectors import AnyVersion, before, in_force, on_trial
from controlplane.kernel.rules import PERMILLE


class Versions(ABC, Generic[AnyVersion]):
    """All versions of one thing, as `actor` changes them; a subclass is a kind of thing.

    Steps raise what `alone` does, Conflict where a version is no longer as it was when it was read,
    and ValidationError by field.
    """

    # Begins the names of the steps in the audit.
    kind: ClassVar[str]
    # The field of the model that holds what a version says.
    content: ClassVar[str]
    # What stood in it before the first version, if one can go back to that.
    nothing: ClassVar[object] = None
    versions_max: ClassVar[int | None] = None
    # Whether a trial has a share of requests; else it sees all and decides over none.
    shared_trial: ClassVar[bool] = True

    def __init__(
        self, actor: Actor, rows: QuerySet[AnyVersion], organization_id: uuid.UUID | None = None
    ) -> None:
        self.actor, self.rows, self.organization_id = actor, rows, organization_id

    @abstractmethod
    def alone(self) -> AbstractContextManager[None]:
        """A transaction that holds the lock; raises where the actor may not change versions."""

    @abstractmethod
    def new(self) -> AnyVersion:
        """An unsaved version of the thing."""

    @abstractmethod
    def read(self, content: object) -> object:
        """Content in the form in which it is stored."""

    @abstractmethod
    def errors(self, version: AnyVersion) -> Iterable[tuple[str, str]]:
        """Fields and messages of what keeps a version from being followed."""

    @abstractmethod
    def ready(self, version: AnyVersion, *, trial: bool = False) -> AnyVersion:
        """The version as it is now, if its turn has come, errors apart."""

    @abstractmethod
    def facts(self, version: AnyVersion) -> Facts:
        """What every entry of the audit says of a version."""

    def applied(self, version: AnyVersion) -> dict[str, object]:
        """What publishing does besides; returns fields that are kept with it."""
        return {}

    def check_room(self) -> None:
        """Raise ValidationError if gateways could not keep what they are to follow."""

    def draft_create(self, content: object, note: str = "") -> AnyVersion:
        """A draft of the next version; it need not be valid yet, but of the right form."""
        with self.alone():
            made = self._create(self.read(content), note)
            self.audit("draft_create", made)
        return made

    def draft_update(self, version: AnyVersion, content: object, note: str) -> AnyVersion:
        with self.alone():
            fields = {self.content: self.read(content), "note": _note(note)}
            now = self.now(version, State.DRAFT)
            now.change(revision=now.revision + 1, **fields)
            self.audit("draft_update", now)
        return now

    def draft_discard(self, version: AnyVersion) -> AnyVersion:
        with self.alone():
            now = self.now(version, State.DRAFT)
            now.retire()
            self.audit("draft_discard", now)
        return now

    def publish(self, version: AnyVersion) -> AnyVersion:
        with self.alone():
            return self.put_in_force(self.ready(version), "publish")

    def canary_start(self, version: AnyVersion, share_permille: int) -> AnyVersion:
        """Let a share of requests follow a version, or change the share of the canary."""
        with self.alone():
            if self.shared_trial and not 1 <= share_permille < PERMILLE:
                raise ValidationError({"share_permille": f"Must be 1 to {PERMILLE - 1} per mille."})
            now = self.ready(version, trial=True)
            if now.state == State.DRAFT:
                self._refuse_errors(now)
            now.change(state=State.CANARY, share_permille=share_permille)
            self.check_room()
            self.audit("canary_start", now, share_permille=share_permille)
        return now

    def canary_stop(self, version: AnyVersion, reason: str | None = None) -> AnyVersion:
        """End the trial: all requests follow the published version again."""
        with self.alone():
            now = self.now(version, State.CANARY)
            now.retire()
            self.audit("canary_stop", now, **({} if reason is None else {"reason": _note(reason)}))
        return now

    def rollback(self, to: AnyVersion | None = None, *, to_nothing: bool = False) -> AnyVersion:
        """Publish a copy of the version before the present one, or of `to`; ends the canary."""
        with self.alone():
            current, canary = in_force(self.rows), on_trial(self.rows)
            target = to or (before(self.rows, current) if current and not to_nothing else None)
            known = target.published_at if target else self.nothing
            if current is None or known is None:
                raise Conflict({"version": "There is no earlier version to roll back to."})
            if target is None and getattr(current, self.content) == self.nothing:
                raise Conflict({"version": f"No {self.content} are in force already."})
            if canary is not None:
                canary.retire()
            origin = (target.copy_of or target) if target else None
            back = f"version {origin.version}" if origin else f"no {self.content}"
            note = f"rollback to {back}"
            content = self.read(getattr(target, self.content) if target else self.nothing)
            made = self._create(content, note, copy_of=origin)
            ended = canary.version if canary else None
            return self.put_in_force(made, "rollback", canary_ended=ended)

    def now(self, version: AnyVersion, *states: State) -> AnyVersion:
        """The version, if it is in one of these states and no other than when it was read."""
        now = self.rows.get(id=version.id)
        if now.state not in states:
            wanted = " or ".join(state.value for state in states)
            raise Conflict({"state": f"Version {now.version} is {now.state}, not {wanted}."})
        if now.revision != version.revision:
            raise Conflict(
                {"revision": "This draft was changed by someone else in the meantime. Reload it."}
            )
        return now

    def put_in_force(self, now: AnyVersion, step: str, **more: str | int | None) -> AnyVersion:
        """Publish a version that has no errors in place of the present one."""
        self._refuse_errors(now)
        more_kept = self.applied(now)
        replaced = in_force(self.rows)
        if replaced is not None:
            replaced.retire()
        life = {"state": State.PUBLISHED, "published_at": timezone.now(), "share_permille": 0}
        now.change(**life, **more_kept)
        self.check_room()
        self.audit(step, now, before=replaced.version if replaced else None, **more)
        return now

    def audit(self, step: str, version: AnyVersion, **more: str | int | None) -> None:
        action, facts, of = f"{self.kind}.{step}", self.facts(version), self.organization_id
        detail: Facts = {**facts, **more}
        audit_record(self.actor, action, subject=version, organization_id=of, detail=detail)

    def _refuse_errors(self, version: AnyVersion) -> None:
        errors: dict[str, list[str]] = {}
        for field, message in self.errors(version):
            errors.setdefault(field, []).append(message)
        if errors:
            raise ValidationError(errors)

    def _create(self, content: object, note: str, *, copy_of: Version | None = None) -> AnyVersion:
        last = self.rows.aggregate(last=Max("version"))["last"] or 0
        if last == self.versions_max:
            raise ValidationError({"version": f"There are {last} versions; that is all."})
        person = isinstance(self.actor, get_user_model())
        made = self.new()
        made.version, made.note, made.copy_of = last + 1, _note(note), copy_of
        made.created_by_id = self.actor.actor_id if person else None
        setattr(made, self.content, content)
        made.save(force_insert=True)
        return made


def _note(text: str) -> str:
    if len(text) > NOTE_CHARS_MAX or not text.isprintable():
        told = f"One line of at most {NOTE_CHARS_MAX} printable characters."
        raise ValidationError({"note": told})
    return text
