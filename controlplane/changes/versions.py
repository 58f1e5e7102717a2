"""The life of a change, whatever it is of: drafted, held against what is there now, published.

A change says only what is to be another. Publishing keeps what it replaced; going back publishes
that, one change after the other.
"""

import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import msgspec
from django.core.exceptions import ValidationError
from django.utils import timezone

from controlplane.changes.models import ChangeKind, ChangeVersion
from controlplane.core.api.shapes import read_shape
from controlplane.core.audit.entries import Actor, Facts
from controlplane.core.errors.body import Conflict
from controlplane.core.permissions import Action, organization_scope
from controlplane.core.queries import rows
from controlplane.core.versions.models import State
from controlplane.core.versions.selectors import before, in_force, on_trial
from controlplane.core.versions.services import Versions
from controlplane.tenants.access import require

# Each is an audit row, of which a person may make 300 in a minute.
ENTRIES_MAX = 200
BOUND = f"Must change 1 to {ENTRIES_MAX} things."
VERSIONS_MAX = 10_000
VERSIONS_SHOWN_MAX = 100


class ChangeEntry(NamedTuple):
    """One thing that a change makes another: its path in the content, what it is, its values.

    `missing` says why there is no such thing; without, `check` raises ValidationError for values
    that it cannot have, locking nothing, and `put` makes the values those in force.
    """

    path: str
    name: str
    key: tuple[str, ...]
    now: msgspec.Struct | None
    wanted: msgspec.Struct
    check: Callable[[], object]
    put: Callable[[], object]
    missing: tuple[str, str] | None = None


class FieldDifference(msgspec.Struct, frozen=True):
    """What a field is, and what it is to be."""

    field: str
    before: Any
    after: Any


class Differing(msgspec.Struct, frozen=True):
    """One thing that a change makes another."""

    name: str
    fields: list[FieldDifference]


class ChangeVersions(Versions[ChangeVersion]):
    """All changes of one kind, of one organization or of the installation; a subclass is a kind."""

    kind, content, versions_max = "change", "content", VERSIONS_MAX
    shared_trial = False
    of: ClassVar[ChangeKind]
    shape: ClassVar[type[msgspec.Struct]]
    # What they need who may see, draft and publish.
    needs: ClassVar[Action]
    # Fields of entries that say which thing it is of.
    named: ClassVar[frozenset[str]]

    def __init__(self, actor: Actor, organization_id: uuid.UUID | None = None) -> None:
        found = ChangeVersion.objects.filter(kind=self.of, organization=organization_id)
        found = found.select_related("created_by", "copy_of")
        super().__init__(actor, found, organization_id)

    @abstractmethod
    def entries(self, content: Any) -> Iterator[ChangeEntry]:
        """What a content of the kind's shape says, beside what there is now; needs the scope."""

    @abstractmethod
    def joined(self, entries: Iterable[msgspec.Struct]) -> msgspec.Struct:
        """Values of entries as a content."""

    @contextmanager
    def seen(self) -> Iterator[None]:
        """The scope, for who may see changes; raises as `require` does."""
        require(self.actor, self.needs, self.organization_id)
        with organization_scope([self.organization_id] if self.organization_id else []):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self.seen():
            # Readers are not held up.
            lock = f"changes {self.of.value} {self.organization_id}"
            rows("SELECT pg_advisory_xact_lock(hashtext(%s))", [lock])
            yield

    def newest(self) -> list[ChangeVersion]:
        """The newest, newest first."""
        with self.seen():
            return [*self.rows.order_by("-version")[:VERSIONS_SHOWN_MAX]]

    def get(self, version: int) -> ChangeVersion:
        """One version; raises DoesNotExist."""
        with self.seen():
            return self.rows.get(version=version)

    def in_force(self) -> ChangeVersion | None:
        with self.seen():
            return in_force(self.rows)

    def differences(self, version: ChangeVersion) -> list[Differing]:
        """What publishing it would change now; of what was published, what it did."""
        with self.seen():
            found = list(self.entries(self._shaped(version)))
            had = [each.now for each in found]
            if version.replaced is not None:
                had = [*self._values(version.replaced)]
        told = [
            (each, _changed(self.named, before, each.wanted))
            for each, before in zip(found, had, strict=True)
        ]
        return [Differing(each.name, fields) for each, fields in told if fields]

    def checked(self, version: ChangeVersion) -> Any:
        """What it says, if that can be put in force; raises ValidationError by field."""
        with self.seen():
            self._refuse_errors(version)
        return self._shaped(version)

    def problems(self, version: ChangeVersion) -> list[tuple[str, str]]:
        """Fields and messages of what keeps a draft from being published."""
        with self.seen():
            return list(self.errors(version))

    def draft_add(self, entry: msgspec.Struct) -> ChangeVersion:
        """Say one more thing in the newest draft, or in a new one, in place of what it said."""
        with self.alone():
            draft = self.rows.filter(state=State.DRAFT).order_by("-version").first()
            said = [] if draft is None else [*self._values(draft.content)]
            others = [one for one in said if self._thing(one) != self._thing(entry)]
            content = msgspec.to_builtins(self.joined([*others, entry]))
            if draft is None:
                return self.draft_create(content)
            return self.draft_update(draft, content, draft.note)

    def _thing(self, entry: msgspec.Struct) -> tuple[object, ...]:
        """What an entry is of."""
        names = [name for name in entry.__struct_fields__ if name in self.named]
        return type(entry), *(getattr(entry, name) for name in names)

    def new(self) -> ChangeVersion:
        return ChangeVersion(kind=self.of, organization_id=self.organization_id)

    def read(self, content: object) -> object:
        if len([*self._values(content)]) > ENTRIES_MAX:
            raise ValidationError({"content": BOUND})
        return msgspec.to_builtins(read_shape(content, self.shape, field="content"))

    def errors(self, version: ChangeVersion) -> Iterator[tuple[str, str]]:
        """All that can be told without a lock; the rest is told when it is put in force."""
        if not 0 < len([*self._values(version.content)]) <= ENTRIES_MAX:
            yield "content", BOUND
            return
        seen: set[tuple[str, ...]] = set()
        for each in self.entries(self._shaped(version)):
            if each.missing is None:
                yield from _complaints(each.path, each.check)
            else:
                field, message = each.missing
                yield f"{each.path}.{field}", message
            if each.key in seen:
                yield each.path, "Is there twice."
            seen.add(each.key)

    def ready(self, version: ChangeVersion, *, trial: bool = False) -> ChangeVersion:
        now = self.now(version, State.DRAFT, State.CANARY)
        other = on_trial(self.rows.exclude(id=now.id))
        if trial and other is not None:
            raise Conflict({"state": f"Version {other.version} is in shadow: stop it first."})
        return now

    def facts(self, version: ChangeVersion) -> Facts:
        return {"of": self.of.value, "version": version.version}

    def applied(self, version: ChangeVersion) -> dict[str, object]:
        """Puts its values in force; what stood there before is kept with it."""
        entries = list(self.entries(self._shaped(version)))
        replaced = self.joined(each.now for each in entries if each.now is not None)
        for each in sorted(entries, key=_order):
            if wrong := dict(_complaints(each.path, each.put)):
                raise ValidationError(wrong)
        return {"replaced": msgspec.to_builtins(replaced)}

    def canary_start(self, version: ChangeVersion, share_permille: int = 0) -> ChangeVersion:
        with self.alone():
            now = super().canary_start(version, share_permille)
            now.change(canary_at=timezone.now())
        return now

    def undo(self, version: int) -> ChangeVersion:
        """Put back what the change in force replaced, which is number `version` for the caller.

        Once more goes back one change further. Values that were set since are lost.
        """
        with self.alone():
            current = in_force(self.rows)
            if current is None or current.version != version:
                raise Conflict({"version": f"Version {version} is not the last published change."})
            undone = self.undoable(current)
            if undone is None:
                raise Conflict({"version": "There is no earlier change to undo."})
            note = f"rollback of version {undone.version}"
            made = self._create(undone.replaced, note, copy_of=undone)
            return self.put_in_force(made, "rollback", undone=undone.version)

    def undoable(self, current: ChangeVersion | None) -> ChangeVersion | None:
        """Whose effect would be undone next; None where all that was published is undone."""
        while current is not None and current.copy_of is not None:
            current = before(self.rows, current)
        return current

    def _shaped(self, version: ChangeVersion) -> msgspec.Struct:
        return read_shape(version.content, self.shape, field="content")

    def _values(self, content: Any) -> Iterator[msgspec.Struct]:
        shaped = read_shape(content, self.shape, field="content")
        for name in shaped.__struct_fields__:
            yield from getattr(shaped, name)


def _order(entry: ChangeEntry) -> tuple[bool, tuple[str, ...]]:
    """Every hold locks rows of budgets, in the order of their ids: they come last, and so."""
    return entry.key[0] == "budget", entry.key


def _complaints(path: str, step: Callable[[], object]) -> Iterator[tuple[str, str]]:
    try:
        step()
    except ValidationError as error:
        for field, words in error.message_dict.items():
            yield f"{path}.{field}", " ".join(words)


def _changed(
    named: frozenset[str], old: msgspec.Struct | None, new: msgspec.Struct
) -> list[FieldDifference]:
    names = [name for name in new.__struct_fields__ if name not in named]
    found = [FieldDifference(name, getattr(old, name, None), getattr(new, name)) for name in names]
    return [one for one in found if one.before != one.after]
