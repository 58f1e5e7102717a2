"""Prompt templates under /api/catalog/templates: each operation calls one service."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, TypedDict

import msgspec
from django.core.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.catalog import prompts
from controlplane.catalog.models import PromptTemplate, PromptVersion
from controlplane.catalog.selectors_prompts import (
    DryRun,
    Listed,
    body_of,
    prompt_dry_run,
    prompt_get,
    prompt_list,
    prompt_version_get,
    prompt_versions,
)
from controlplane.core.api import ApiView
from controlplane.core.api_schema import operation
from controlplane.kernel.prompts import BadValue, Value, find_problems

CREATED, NO_CONTENT = 201, 204


class NewBody(msgspec.Struct, forbid_unknown_fields=True):
    """A template; with a project only its keys may name it."""

    name: str
    project: uuid.UUID | None = None


class DraftBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new draft; `body` has the form of `kernel.prompts.PromptBody`."""

    body: Any
    note: str = ""


class ChangeBody(msgspec.Struct, forbid_unknown_fields=True):
    """A draft's new body, and the revision that it changes."""

    body: Any
    revision: int
    note: str = ""


class RevisionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which revision the caller has seen."""

    revision: int


class CanaryBody(msgspec.Struct, forbid_unknown_fields=True):
    """A share of the requests that name no version."""

    revision: int
    share_permille: int


class DryRunBody(msgspec.Struct, forbid_unknown_fields=True):
    """What to fill in."""

    variables: dict[str, Value] = {}


class RollbackBody(msgspec.Struct, forbid_unknown_fields=True):
    """To which version; left out, to the one in force before the present one."""

    version: int | None = None


class ListedJson(TypedDict):
    """A template with the numbers of what is in force, on trial and newest."""

    name: str
    project: str | None
    published: int | None
    canary: int | None
    newest: int | None


class TemplatesJson(TypedDict):
    """The organization's templates, by name."""

    templates: list[ListedJson]


class CreatedJson(TypedDict):
    """A template without versions."""

    name: str
    versions: list[Any]


class VersionJson(TypedDict):
    """A version with its body and what is wrong with it."""

    version: int
    state: str
    note: str
    revision: int
    share_permille: int
    copy_of: int | None
    created_by: str | None
    created_at: datetime
    published_at: datetime | None
    body: Any
    problems: list[dict[str, Any]]


class TemplateJson(TypedDict):
    """A template with its versions, newest first."""

    name: str
    project: str | None
    versions: list[VersionJson]


class PromptView(ApiView):
    """What operations on templates share."""

    def template(self, organization: uuid.UUID, name: str) -> PromptTemplate:
        """The template; raises DoesNotExist."""
        return prompt_get(actor=self.actor(), organization_id=organization, name=name)

    def version(
        self, organization: uuid.UUID, name: str, version: int, revision: int | None = None
    ) -> PromptVersion:
        """The version, as the caller has seen it; raises DoesNotExist."""
        template = self.template(organization, name)
        found = prompt_version_get(actor=self.actor(), template=template, version=version)
        found.revision = found.revision if revision is None else revision
        return found

    def answer(self, version: PromptVersion, status: int = 200) -> Response:
        """The version as it is now."""
        now = prompt_version_get(
            actor=self.actor(), template=version.template, version=version.version
        )
        return Response(version_json(now), status=status)


class Prompts(PromptView):
    """`GET | POST templates/<organization>`: the templates, and a new one."""

    @operation(answer=TemplatesJson)
    def get(self, request: Request, organization: uuid.UUID) -> Response:
        """By name, with the numbers of what is in force and on trial."""
        found = prompt_list(actor=self.actor(), organization_id=organization)
        return Response({"templates": [listed_json(one) for one in found]})

    @operation(body=NewBody, answer=CreatedJson, status=CREATED)
    def post(self, request: Request, organization: uuid.UUID) -> Response:
        """Without versions."""
        wanted = self.body(NewBody)
        made = prompts.prompt_create(
            actor=self.actor(),
            organization_id=organization,
            name=wanted.name,
            project_id=wanted.project,
        )
        return Response({"name": made.name, "versions": []}, status=CREATED)


class OnePrompt(PromptView):
    """`GET templates/<organization>/<name>`: its versions, newest first."""

    @operation(answer=TemplateJson)
    def get(self, request: Request, organization: uuid.UUID, name: str) -> Response:
        """With their bodies."""
        template = self.template(organization, name)
        found = prompt_versions(actor=self.actor(), template=template)
        project = template.project_id
        return Response(
            {
                "name": name,
                "project": str(project) if project else None,
                "versions": [version_json(one) for one in found],
            }
        )


class Drafts(PromptView):
    """`POST templates/<organization>/<name>/versions`: a draft of the next version."""

    @operation(body=DraftBody, answer=VersionJson, status=CREATED)
    def post(self, request: Request, organization: uuid.UUID, name: str) -> Response:
        """It need not be ready, but of the form of a body."""
        wanted, template = self.body(DraftBody), self.template(organization, name)
        made = prompts.prompt_draft_create(
            actor=self.actor(), template=template, body=wanted.body, note=wanted.note
        )
        return self.answer(made, CREATED)


class OneVersion(PromptView):
    """`GET | PUT | DELETE …/versions/<n>`: read one, change a draft, give a draft up."""

    @operation(answer=VersionJson)
    def get(self, request: Request, organization: uuid.UUID, name: str, version: int) -> Response:
        """With its body and what is wrong with it."""
        return self.answer(self.version(organization, name, version))

    @operation(body=ChangeBody, answer=VersionJson)
    def put(self, request: Request, organization: uuid.UUID, name: str, version: int) -> Response:
        """Replace a draft's body; 409 where somebody else changed it meanwhile."""
        wanted = self.body(ChangeBody)
        found = self.version(organization, name, version, wanted.revision)
        changed = prompts.prompt_draft_update(
            actor=self.actor(), version=found, body=wanted.body, note=wanted.note
        )
        return self.answer(changed)

    @operation()
    def delete(
        self, request: Request, organization: uuid.UUID, name: str, version: int
    ) -> Response:
        """It stays readable."""
        found = self.version(organization, name, version)
        prompts.prompt_draft_discard(actor=self.actor(), version=found)
        return Response(status=NO_CONTENT)


class DryRunView(PromptView):
    """`POST …/versions/<n>/dry-run`: the version with sample variables."""

    @operation(body=DryRunBody, answer=DryRun)
    def post(self, request: Request, organization: uuid.UUID, name: str, version: int) -> Response:
        """The messages, their size and how much of it caches; tokens are estimates."""
        found = self.version(organization, name, version)
        try:
            tried = prompt_dry_run(body_of(found), self.body(DryRunBody).variables)
        except BadValue as error:
            field = ".".join(filter(None, ("variables", error.name)))
            raise ValidationError({field: str(error)}) from error
        return Response(msgspec.to_builtins(tried))


class Publish(PromptView):
    """`POST …/versions/<n>/publish`: a draft or the canary put in force."""

    @operation(body=RevisionBody, answer=VersionJson)
    def post(self, request: Request, organization: uuid.UUID, name: str, version: int) -> Response:
        """Gateways follow within two seconds."""
        found = self.version(organization, name, version, self.body(RevisionBody).revision)
        return self.answer(prompts.prompt_publish(actor=self.actor(), version=found))


class CanaryStart(PromptView):
    """`POST …/versions/<n>/canary`: a draft put on trial, or another share for the canary."""

    @operation(body=CanaryBody, answer=VersionJson)
    def post(self, request: Request, organization: uuid.UUID, name: str, version: int) -> Response:
        """Requests that name a version are not part of it."""
        wanted = self.body(CanaryBody)
        started = prompts.prompt_canary_start(
            actor=self.actor(),
            version=self.version(organization, name, version, wanted.revision),
            share_permille=wanted.share_permille,
        )
        return self.answer(started)


class CanaryStop(PromptView):
    """`POST …/versions/<n>/stop`: the canary ended."""

    @operation(answer=VersionJson)
    def post(self, request: Request, organization: uuid.UUID, name: str, version: int) -> Response:
        """Every request gets the published version again."""
        found = self.version(organization, name, version)
        return self.answer(prompts.prompt_canary_stop(actor=self.actor(), version=found))


class Rollback(PromptView):
    """`POST templates/<organization>/<name>/rollback`: the way back."""

    @operation(body=RollbackBody, answer=VersionJson)
    def post(self, request: Request, organization: uuid.UUID, name: str) -> Response:
        """Publish a copy of an earlier version under a new number; a canary ends with it."""
        number, template = self.body(RollbackBody).version, self.template(organization, name)
        to = None if number is None else self.version(organization, name, number)
        made = prompts.prompt_rollback(actor=self.actor(), template=template, to=to)
        return self.answer(made)


def listed_json(listed: Listed) -> ListedJson:
    """A template without its versions."""
    template = listed.template
    return {
        "name": template.name,
        "project": str(template.project_id) if template.project_id else None,
        "published": listed.published,
        "canary": listed.canary,
        "newest": listed.newest,
    }


def version_json(version: PromptVersion) -> VersionJson:
    """A version with its body and what is wrong with it."""
    maker, copy_of = version.created_by, version.copy_of
    return {
        "version": version.version,
        "state": version.state,
        "note": version.note,
        "revision": version.revision,
        "share_permille": version.share_permille,
        "copy_of": copy_of.version if copy_of else None,
        "created_by": maker.email if maker else None,
        "created_at": version.created_at,
        "published_at": version.published_at,
        "body": version.body,
        "problems": [problem._asdict() for problem in find_problems(body_of(version))],
    }
