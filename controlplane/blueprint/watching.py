"""A folder of documents that is applied whenever it changes: all of them or none.

What came of it is said in the log and kept in the audit log, from which the page has it.
"""

import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db import Error, connections, transaction

from controlplane.blueprint.configuration import documents_apply
from controlplane.blueprint.providers import key_read
from controlplane.blueprint.yamltext import TEXT_CHARS_MAX
from controlplane.core.answers import PageAsk
from controlplane.core.audit.entries import OPERATOR, Actor, Facts, audit_record
from controlplane.tenants.audit.selectors import AuditFilter, audit_search

APPLIED, REFUSED = "configuration.apply", "configuration.refuse"
PATTERN = "[!.]*.yaml"
DOCUMENTS_MAX = 200
ERRORS_KEPT_MAX = 20
SHOWN_MAX = 10
_FOLDERS = uuid.uuid5(uuid.NAMESPACE_URL, "configuration-folder")


class ConfigurationPass(NamedTuple):
    """One time that a folder was applied, with how many changes, or refused, with every reason."""

    at: datetime
    folder: str
    applied: bool
    documents: list[str]
    changes: int
    errors: list[str]


class WatchedFolder:
    """Call `look` again and again. Nothing is applied that was not the same at two looks, so that
    nobody's half-written files are; what was refused is tried again, and told once.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.id = uuid.uuid5(_FOLDERS, str(folder))
        self._folder = folder
        self._say = say
        self._seen: dict[str, str] | None = None
        self._applied: dict[str, str] | None = None
        self._told: list[str] = []

    def look(self) -> None:
        """Raises nothing: what cannot be done now is told, and tried at the next look."""
        try:
            found = self._read()
            settled, self._seen = found == self._seen, found
            if settled and found != self._applied:
                self._apply(found)
        except ValidationError as error:
            told = error.message_dict.items()
            self._refuse([f"{path}: {' '.join(each)}" for path, each in told])
        except (PermissionDenied, ObjectDoesNotExist) as error:
            self._refuse([str(error)])
        except (Error, OSError) as error:
            self._tell([f"cannot be applied now: {error}"])
            connections.close_all()

    def _apply(self, found: dict[str, str]) -> None:
        with transaction.atomic():
            changes = documents_apply(actor=OPERATOR, documents=found, dry_run=False, keys=key_read)
            self._record(APPLIED, {"documents": list(found), "changes": len(changes)})
        self._applied, self._told = found, []
        count = len(changes)
        self._say(f"applied {', '.join(found) or 'no document'}: {count} changed")
        for change in changes:
            self._say(f"  {change.path}")

    def _refuse(self, errors: list[str]) -> None:
        if errors == self._told:
            return
        kept = errors[:ERRORS_KEPT_MAX]
        try:
            with transaction.atomic():
                self._record(REFUSED, {"documents": list(self._seen or ()), "errors": kept})
        except Error as error:
            errors = [*errors, f"not in the audit log: {error}"]
        self._tell(errors)

    def _tell(self, errors: list[str]) -> None:
        if errors != self._told:
            self._say("refused, and nothing was changed:\n  " + "\n  ".join(errors))
        self._told = errors

    def _record(self, action: str, facts: Facts) -> None:
        detail: Facts = {"folder": str(self._folder), **facts}
        audit_record(OPERATOR, action, subject=self, detail=detail)

    def _read(self) -> dict[str, str]:
        files = sorted(self._folder.glob(PATTERN))
        if len(files) > DOCUMENTS_MAX:
            told = f"At most {DOCUMENTS_MAX} documents."
            raise ValidationError({str(self._folder): told})
        return {file.name: _text(file) for file in files}


def configuration_passes(*, actor: Actor) -> list[ConfigurationPass]:
    """What came of watched folders lately, newest first; for staff."""
    wanted, ask = AuditFilter(action="configuration."), PageAsk(limit=SHOWN_MAX)
    rows = audit_search(actor=actor, organization_id=None, wanted=wanted, ask=ask).rows
    return [
        ConfigurationPass(
            row.created_at,
            row.detail["folder"],
            row.action == APPLIED,
            row.detail["documents"],
            row.detail.get("changes", 0),
            row.detail.get("errors", []),
        )
        for row in rows
    ]


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(TEXT_CHARS_MAX + 1)
    except UnicodeDecodeError as error:
        raise ValidationError({file.name: f"Is not UTF-8: {error}."}) from error
