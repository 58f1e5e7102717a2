"""Changes of limits under an organization's address, and of prices under the catalogue's: one life
cycle, the same operations.
"""

from datetime import datetime
from typing import Any, ClassVar, TypedDict

import msgspec
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.changes.dryruns import LimitsDryRun, limits_dry_run, limits_shadow
from controlplane.changes.limits import LimitChanges
from controlplane.changes.models import ChangeVersion
from controlplane.changes.prices import PriceChanges
from controlplane.changes.pricing import PricesDryRun, prices_dry_run
from controlplane.changes.versions import ChangeVersions
from controlplane.core.api.schema import CREATED, Whole, operation
from controlplane.core.api.views import OF_ORGANIZATION, ApiView
from controlplane.core.versions.answers import VersionSummary, version_answer
from controlplane.core.versions.models import State
from controlplane.routing.traffic import HOURS_DEFAULT
from controlplane.tenants.access import require

EXAMPLE = {
    "content": {"limits": [{"of": "proj_01890a5d5c1c7000800000000000000a", "concurrency": 20}]},
    "note": "room for the batch jobs",
}


class ChangeDraftBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new draft; `content` says what is to be another, and nothing else."""

    content: Any
    note: str = ""


class ChangedDraftBody(msgspec.Struct, forbid_unknown_fields=True):
    """A draft's new content, and the revision that it changes."""

    content: Any
    revision: int
    note: str = ""


class ChangeRevisionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which revision of the draft the caller has seen."""

    revision: int


class ChangeHoursBody(msgspec.Struct, forbid_unknown_fields=True):
    """How far back the requests reach that are tried."""

    hours: int = HOURS_DEFAULT


class UndoBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which change is in force, as the caller saw it: sent twice, it leads no further back."""

    version: int


class ChangeSummaryJson(VersionSummary):
    """A change without what it says; `copy_of` is the one that it undid."""

    canary_at: datetime | None


class ChangeJson(ChangeSummaryJson):
    """A change: its `content`, what it `replaced` when it was published, what it makes another,
    and what keeps a draft from being published.
    """

    content: Any
    replaced: Any
    differences: list[dict[str, Any]]
    problems: list[dict[str, str]]


class ShadowAnswer(TypedDict):
    """The change in shadow; null where none is."""

    shadow: LimitsDryRun | None


class ChangeView(ApiView):
    """What operations on changes share; a subclass says of what they are, and where."""

    of: ClassVar[type[ChangeVersions]]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        require(self.actor(), self.of.needs, self.kwargs.get("organization_id"))

    def changes(self) -> Any:
        if self.of is LimitChanges:
            return LimitChanges(**self.whose())
        return self.of(self.actor())

    def version(self, revision: int | None = None) -> ChangeVersion:
        """The version that the path names, as the caller has seen it; raises DoesNotExist."""
        found: ChangeVersion = self.changes().get(self.kwargs["version"])
        found.revision = found.revision if revision is None else revision
        return found

    def answer(self, version: ChangeVersion, status: int = 200) -> Response:
        return Response(change_json(self.changes(), version), status=status)


class ChangesHere(ChangeView):
    @operation(list_of=Whole(ChangeSummaryJson))
    def get(self) -> Response:
        """List the newest changes."""
        return self.listed(self.changes().newest(), change_summary_json, "version")

    @operation(body=ChangeDraftBody, answer={CREATED: ChangeJson}, example=EXAMPLE)
    def post(self, wanted: ChangeDraftBody) -> Response:
        """Begin a draft; nothing changes yet."""
        made = self.changes().draft_create(wanted.content, wanted.note)
        return self.answer(made, CREATED)


class OneChange(ChangeView):
    @operation(answer=ChangeJson)
    def get(self) -> Response:
        """Get a change, what differs from what is in force, and what is wrong with it."""
        return self.answer(self.version())

    @operation(body=ChangedDraftBody, answer=ChangeJson)
    def put(self, wanted: ChangedDraftBody) -> Response:
        """Replace a draft's content; 409 where somebody else changed it meanwhile."""
        found = self.version(wanted.revision)
        return self.answer(self.changes().draft_update(found, wanted.content, wanted.note))

    @operation()
    def delete(self) -> None:
        """Discard a draft; it stays readable."""
        self.changes().draft_discard(self.version())


class ChangePublish(ChangeView):
    @operation(body=ChangeRevisionBody, answer=ChangeJson, step_up=True)
    def post(self, asked: ChangeRevisionBody) -> Response:
        """Put a draft in force, or the change in shadow."""
        return self.answer(self.changes().publish(self.version(asked.revision)))


class ChangeUndo(ChangeView):
    @operation(body=UndoBody, answer=ChangeJson, step_up=True)
    def post(self, asked: UndoBody) -> Response:
        """Put back what the change in force replaced; once more goes back one change further."""
        return self.answer(self.changes().undo(asked.version))


class LimitsTrial(ChangeView):
    @operation(body=ChangeHoursBody, answer=LimitsDryRun)
    def post(self, asked: ChangeHoursBody) -> LimitsDryRun:
        """Replay recorded requests through the limits in force and through the draft's."""
        return limits_dry_run(self.changes(), self.version(), asked.hours)


class PricesTrial(ChangeView):
    @operation(body=ChangeHoursBody, answer=PricesDryRun)
    def post(self, asked: ChangeHoursBody) -> PricesDryRun:
        """Price recorded requests by the prices in force and by the draft's."""
        return prices_dry_run(self.changes(), self.version(), asked.hours)


class ShadowStart(ChangeView):
    @operation(body=ChangeRevisionBody, answer=ChangeJson)
    def post(self, asked: ChangeRevisionBody) -> Response:
        """From now on requests are judged by the draft, too, and none is refused for it."""
        return self.answer(self.changes().canary_start(self.version(asked.revision)))


class ShadowStop(ChangeView):
    @operation(answer=ChangeJson)
    def post(self) -> Response:
        """End the shadow; the change can be read and copied."""
        return self.answer(self.changes().canary_stop(self.version()))


class ShadowReport(ChangeView):
    @operation(answer=ShadowAnswer)
    def get(self) -> Any:
        """Whom the change in shadow would have refused since its start."""
        return msgspec.to_builtins({"shadow": limits_shadow(self.changes())})


_VERSION = "/<int:version>"
_STEPS: dict[str, type[ChangeView]] = {
    "": ChangesHere,
    _VERSION: OneChange,
    f"{_VERSION}/publish": ChangePublish,
    "/rollback": ChangeUndo,
}
_OF_LIMITS: dict[str, type[ChangeView]] = {
    f"{_VERSION}/dry-run": LimitsTrial,
    f"{_VERSION}/shadow": ShadowStart,
    f"{_VERSION}/stop": ShadowStop,
    "/shadow": ShadowReport,
}
for _of, _word, _under, _own in (
    (LimitChanges, "Limits", f"{OF_ORGANIZATION}/limits/changes", _OF_LIMITS),
    (PriceChanges, "Prices", "api/catalog/prices/changes", {f"{_VERSION}/dry-run": PricesTrial}),
):
    for _at, _view in {**_STEPS, **_own}.items():
        type(f"{_word}{_view.__name__}", (_view,), {"of": _of}, at=f"{_under}{_at}")


def change_summary_json(version: ChangeVersion) -> ChangeSummaryJson:
    return version_answer(ChangeSummaryJson, version)


def change_json(changes: ChangeVersions, version: ChangeVersion) -> ChangeJson:
    draft = version.state == State.DRAFT
    return {
        **change_summary_json(version),
        "content": version.content,
        "replaced": version.replaced,
        "differences": msgspec.to_builtins(changes.differences(version)),
        "problems": [
            {"field": field, "message": message}
            for field, message in (changes.problems(version) if draft else ())
        ],
    }
