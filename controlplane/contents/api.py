"""What was said under /api/organizations/<id>/projects/<id>/: settings, reading, deleting."""

from typing import Any, TypedDict
from uuid import UUID

import msgspec
from drf_spectacular.utils import OpenApiParameter
from rest_framework.response import Response

from controlplane.catalog.selectors import prompt_get, prompt_version_get, prompt_versions
from controlplane.contents import services
from controlplane.contents.replay import TemplateReplay, template_replay
from controlplane.core.api.schema import operation
from controlplane.core.api.views import OF_ORGANIZATION, ApiView
from controlplane.core.versions.models import State
from controlplane.kernel.ids import RequestId
from controlplane.tenants.models import Project
from controlplane.tenants.people.selectors import project_of

END_USER = OpenApiParameter("end_user", str, description="As requests name them.")
SEARCH = (
    OpenApiParameter("words", str, description="All of them are in prompt or answer."),
    OpenApiParameter("days", int, description="How far back."),
    END_USER,
    *(OpenApiParameter(name, str, description="Exactly.") for name in ("model", "key", "status")),
)


class KeepingBody(msgspec.Struct, forbid_unknown_fields=True):
    """How long it is kept, and the roles that may read it; 0 days deletes what is kept."""

    keeps_days: int
    content_readers: list[str]


class ContentJson(TypedDict):
    """What was said in a request: `body` as its client sent it, and each choice of the answer."""

    id: RequestId
    object: str
    model: str
    path: str
    started_us: int
    end_user: str
    status: str
    truncated: bool
    choices: list[dict[str, Any]]
    body: Any


class DeletedJson(TypedDict):
    """In how many requests something was deleted."""

    deleted: int


class ReplayBody(msgspec.Struct, forbid_unknown_fields=True):
    """A version of a template."""

    template: str
    version: int


class ContentView(ApiView, under=f"{OF_ORGANIZATION}/projects/<proj:project_id>/"):
    """What the operations share."""

    def project(self) -> Project:
        names = ("organization_id", "project_id")
        return project_of(actor=self.actor(), **{name: self.kwargs[name] for name in names})


class KeepingView(ContentView, at="keeping"):
    @operation(body=KeepingBody, answer=KeepingBody, step_up=True)
    def put(self, body: KeepingBody) -> KeepingBody:
        """Set how long a project keeps prompts and answers, and for whom. Owners only."""
        keeping = services.Keeping(body.keeps_days, body.content_readers)
        found = services.contents_configure(
            actor=self.actor(), project=self.project(), keeping=keeping
        )
        return KeepingBody(found.keeps_days, found.content_readers)


class ContentsView(ContentView, at="contents"):
    @operation(list_of=ContentJson, params=SEARCH)
    def get(self) -> Response:
        """List prompts and answers, newest first. Audited."""
        found = services.content_page(
            actor=self.actor(),
            project=self.project(),
            wanted=services.ContentFilter.of(self.request.query_params),
            ask=self.page_ask("req"),
        )
        return self.page(found, services.content_json)

    @operation(answer=DeletedJson, params=[END_USER])
    def delete(self) -> DeletedJson:
        """Delete all that one end user said in a project."""
        name = self.request.query_params.get("end_user", "")
        count = services.end_user_delete(actor=self.actor(), project=self.project(), end_user=name)
        return {"deleted": count}


class OneContentView(ContentView, at="contents/<req:request_id>"):
    @operation(answer=ContentJson)
    def get(self, request_id: UUID) -> dict[str, Any]:
        """Get prompt and answer of a request. Audited."""
        found = services.content_read(
            actor=self.actor(), project=self.project(), request=request_id, use="read"
        )
        return services.content_json(found)

    @operation(answer=DeletedJson)
    def delete(self, request_id: UUID) -> DeletedJson:
        """Delete prompt and answer of a request."""
        count = services.content_delete(
            actor=self.actor(), project=self.project(), request=request_id
        )
        return {"deleted": count}


class ContentsReplay(ContentView, at="contents/replay"):
    @operation(body=ReplayBody, answer=TemplateReplay)
    def post(self, asked: ReplayBody) -> TemplateReplay:
        """Put kept requests together once more by a version of the template that they named."""
        actor, project = self.actor(), self.project()
        template = prompt_get(
            actor=actor, organization_id=project.organization_id, name=asked.template
        )
        version = prompt_version_get(actor=actor, template=template, version=asked.version)
        versions = prompt_versions(actor=actor, template=template)
        live = next((one for one in versions if one.state == State.PUBLISHED), None)
        return template_replay(actor=actor, project=project, version=version, live=live)
