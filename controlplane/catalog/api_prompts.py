"""Prompt templates under /api/catalog/templates: each operation calls one service."""

import uuid
from typing import Annotated, Any, TypedDict

import msgspec
from django.core.exceptions import ValidationError
from rest_framework.response import Response

from controlplane.catalog import selectors
from controlplane.catalog.models import PromptTemplate, PromptVersion
from controlplane.catalog.prompts import PromptVersions, prompt_create
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import CREATED, Whole, operation
from controlplane.core.api.views import ApiView
from controlplane.core.permissions import organization_scope
from controlplane.core.versions.answers import VersionSummary, version_answer
from controlplane.kernel.ids import ProjectId, kind, public_id
from controlplane.kernel.prompts import BadValue, Value


class NewBody(msgspec.Struct, forbid_unknown_fields=True):
    """A template; with a project only its keys may name it."""

    name: str
    project: Annotated[uuid.UUID, kind("proj")] | None = None


class PromptDraftBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new draft; `body` has the form of `kernel.prompts.PromptBody`."""

    body: Any
    note: str = ""


class PromptChangeBody(msgspec.Struct, forbid_unknown_fields=True):
    """A draft's new body, and the revision that it changes."""

    body: Any
    revision: int
    note: str = ""


class PromptRevisionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which revision the caller has seen."""

    revision: int


class PromptCanaryBody(msgspec.Struct, forbid_unknown_fields=True):
    """A share of the requests that name no version."""

    revision: int
    share_permille: int


class PromptDryRunBody(msgspec.Struct, forbid_unknown_fields=True):
    """What to fill in."""

    variables: dict[str, Value] = {}


class PromptRollbackBody(msgspec.Struct, forbid_unknown_fields=True):
    """To which version; left out, to the one in force before the present one."""

    version: int | None = None


class ListedJson(TypedDict):
    """A template with the numbers of what is in force, in canary and newest."""

    name: str
    project: ProjectId | None
    published: int | None
    canary: int | None
    newest: int | None


class CreatedJson(TypedDict):
    """A template without versions."""

    name: str
    versions: list[Any]


class VersionJson(VersionSummary):
    """A version with its body and what is wrong with it."""

    share_permille: int
    body: Any
    problems: list[dict[str, Any]]


class TemplateJson(TypedDict):
    """A template with its versions, newest first."""

    name: str
    project: ProjectId | None
    versions: list[VersionJson]


class PromptView(ApiView, under="api/catalog/templates/<org:organization>"):
    """What operations on templates share: the path names the template, and perhaps a version."""

    def template(self) -> PromptTemplate:
        organization, name = self.kwargs["organization"], self.kwargs["name"]
        return selectors.prompt_get(actor=self.actor(), organization_id=organization, name=name)

    def versions(self, template: PromptTemplate) -> PromptVersions:
        return PromptVersions(self.actor(), template)

    def version(self, revision: int | None = None, number: int | None = None) -> PromptVersion:
        """The version, as the caller has seen it; raises DoesNotExist."""
        version = self.kwargs["version"] if number is None else number
        found = selectors.prompt_version_get(
            actor=self.actor(), template=self.template(), version=version
        )
        found.revision = found.revision if revision is None else revision
        return found

    def answer(self, version: PromptVersion, status: int = 200) -> Response:
        now = selectors.prompt_version_get(
            actor=self.actor(), template=version.template, version=version.version
        )
        return Response(version_json(now), status=status)


class Prompts(PromptView, at=""):
    @operation(list_of=Whole(ListedJson))
    def get(self, organization: uuid.UUID) -> Response:
        """List templates by name, with their live and canary versions."""
        found = selectors.prompt_list(actor=self.actor(), organization_id=organization)
        return self.listed(found, listed_json, "name")

    @operation(body=NewBody, answer={CREATED: CreatedJson})
    def post(self, wanted: NewBody, organization: uuid.UUID) -> CreatedJson:
        """Create a template without versions."""
        made = prompt_create(
            actor=self.actor(),
            organization_id=organization,
            name=wanted.name,
            project_id=wanted.project,
        )
        return {"name": made.name, "versions": []}


class OnePrompt(PromptView, at="/<str:name>"):
    @operation(answer=TemplateJson)
    def get(self) -> TemplateJson:
        """With their bodies."""
        template = self.template()
        found = selectors.prompt_versions(actor=self.actor(), template=template)
        project = template.project_id
        return {
            "name": template.name,
            "project": public_id("proj", project) if project else None,
            "versions": [version_json(one) for one in found],
        }


class Drafts(PromptView, at="/<str:name>/versions"):
    @operation(body=PromptDraftBody, answer={CREATED: VersionJson})
    def post(self, wanted: PromptDraftBody) -> Response:
        """It need not be ready, but of the form of a body."""
        made = self.versions(self.template()).draft_create(wanted.body, wanted.note)
        return self.answer(made, CREATED)


class OneVersion(PromptView, at="/<str:name>/versions/<int:version>"):
    @operation(answer=VersionJson)
    def get(self) -> Response:
        """With its body and what is wrong with it."""
        return self.answer(self.version())

    @operation(body=PromptChangeBody, answer=VersionJson)
    def put(self, wanted: PromptChangeBody) -> Response:
        """Replace a draft's body; 409 where somebody else changed it meanwhile."""
        found = self.version(wanted.revision)
        versions = self.versions(found.template)
        return self.answer(versions.draft_update(found, wanted.body, wanted.note))

    @operation()
    def delete(self) -> None:
        """It stays readable."""
        found = self.version()
        self.versions(found.template).draft_discard(found)


class PromptDryRunView(PromptView, at="/<str:name>/versions/<int:version>/dry-run"):
    @operation(body=PromptDryRunBody, answer=selectors.PromptDryRun)
    def post(self) -> object:
        """The messages, their size and how much of it caches; tokens are estimates."""
        found = self.version()
        try:
            tried = selectors.prompt_dry_run(
                selectors.body_of(found), self.body(PromptDryRunBody).variables
            )
        except BadValue as error:
            field = ".".join(filter(None, ("variables", error.name)))
            raise ValidationError({field: str(error)}) from error
        return msgspec.to_builtins(tried)


class PromptPublish(PromptView, at="/<str:name>/versions/<int:version>/publish"):
    @operation(body=PromptRevisionBody, answer=VersionJson)
    def post(self, asked: PromptRevisionBody) -> Response:
        """Gateways follow within two seconds."""
        found = self.version(asked.revision)
        return self.answer(self.versions(found.template).publish(found))


class PromptCanaryStart(PromptView, at="/<str:name>/versions/<int:version>/canary"):
    @operation(body=PromptCanaryBody, answer=VersionJson)
    def post(self, wanted: PromptCanaryBody) -> Response:
        """Requests that name a version are not part of it."""
        found = self.version(wanted.revision)
        versions = self.versions(found.template)
        return self.answer(versions.canary_start(found, wanted.share_permille))


class PromptCanaryStop(PromptView, at="/<str:name>/versions/<int:version>/stop"):
    @operation(answer=VersionJson)
    def post(self) -> Response:
        """Every request gets the published version again."""
        found = self.version()
        return self.answer(self.versions(found.template).canary_stop(found))


class PromptRollback(PromptView, at="/<str:name>/rollback"):
    @operation(body=PromptRollbackBody, answer=VersionJson)
    def post(self, asked: PromptRollbackBody) -> Response:
        """Publish a copy of an earlier version under a new number; a canary ends with it."""
        number, template = asked.version, self.template()
        to = None if number is None else self.version(number=number)
        return self.answer(self.versions(template).rollback(to))


def listed_json(listed: selectors.Listed) -> ListedJson:
    template = listed.template
    return answer_of(ListedJson, listed, name=template.name, project=template.project_id)


def version_json(version: PromptVersion) -> VersionJson:
    """A version with its body and what is wrong with it."""
    with organization_scope([version.organization_id]):
        problems = selectors.prompt_problems(version)
    told = [problem._asdict() for problem in problems]
    return version_answer(VersionJson, version, problems=told)
