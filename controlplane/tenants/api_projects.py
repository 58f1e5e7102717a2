"""Projects of an organization under /api/organizations/<id>/projects."""

from typing import TypedDict
from uuid import UUID

import msgspec
from django.db import transaction
from msgspec.structs import asdict
from rest_framework.response import Response

from controlplane.core.answers import answer_of
from controlplane.core.api.schema import CREATED, Whole, operation
from controlplane.core.api.views import OF_ORGANIZATION, ApiView
from controlplane.kernel.ids import ProjectId
from controlplane.kernel.policies.terms import Policies
from controlplane.tenants import services
from controlplane.tenants.models import Project
from controlplane.tenants.people.selectors import organization_of, project_of, projects_of
from controlplane.tenants.selectors import project_share


class ProjectBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new project."""

    name: str


class ProjectChange(msgspec.Struct, forbid_unknown_fields=True):
    """What is left out keeps its value."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    safety_mode: str | msgspec.UnsetType = msgspec.UNSET
    allow_content_logging: bool | msgspec.UnsetType = msgspec.UNSET
    strict: bool | msgspec.UnsetType = msgspec.UNSET
    labels: list[str] | msgspec.UnsetType = msgspec.UNSET
    cache_minutes: int | msgspec.UnsetType = msgspec.UNSET
    cache_shared: bool | msgspec.UnsetType = msgspec.UNSET
    policies: Policies | msgspec.UnsetType = msgspec.UNSET


class WeightBody(msgspec.Struct, forbid_unknown_fields=True):
    """A project's share of full nodes, 1 to 100."""

    weight: int


class ProjectJson(TypedDict):
    """A project."""

    id: ProjectId
    object: str
    name: str
    safety_mode: str
    allow_content_logging: bool
    strict: bool
    labels: list[str]
    cache_minutes: int
    cache_shared: bool
    policies: Policies
    weight: int
    keeps_days: int


class Projects(ApiView, at=f"{OF_ORGANIZATION}/projects"):
    @operation(list_of=Whole(ProjectJson))
    def get(self) -> Response:
        """List projects."""
        rows = projects_of(**self.whose())
        return self.listed(rows, project_json)

    @operation(body=ProjectBody, answer={CREATED: ProjectJson})
    def post(self, organization_id: UUID) -> ProjectJson:
        """Create a project, with safety layer and content logging off."""
        actor = self.actor()
        organization = organization_of(actor=actor, organization_id=organization_id)
        name = self.body(ProjectBody).name
        made = services.project_create(actor=actor, organization=organization, name=name)
        return project_json(made)


class OneProject(ApiView, at=f"{OF_ORGANIZATION}/projects/<proj:project_id>"):
    @operation(answer=ProjectJson)
    def get(self, organization_id: UUID, project_id: UUID) -> ProjectJson:
        """Get a project."""
        return project_json(self._found(organization_id, project_id))

    @operation(body=ProjectChange, answer=ProjectJson, step_up=True)
    def patch(self, organization_id: UUID, project_id: UUID) -> ProjectJson:
        """Change a project; gateways apply it within two seconds."""
        actor, project = self.actor(), self._found(organization_id, project_id)
        change = self.body(ProjectChange)
        settings = {n: each for n, each in asdict(change).items() if each is not msgspec.UNSET}
        name = settings.pop("name", None)
        with transaction.atomic():
            services.project_update(actor=actor, project=project, **settings)
            if name is not None:
                services.project_rename(actor=actor, project=project, name=name)
        return project_json(project)

    def _found(self, organization_id: UUID, project_id: UUID) -> Project:
        return project_of(**self.whose(), project_id=project_id)


class Weight(ApiView, at=f"{OF_ORGANIZATION}/projects/<proj:project_id>/weight"):
    @operation(body=WeightBody, answer=ProjectJson)
    def put(self, organization_id: UUID, project_id: UUID) -> ProjectJson:
        """Set the scheduling weight of a project."""
        actor = self.actor()
        project = project_share(actor=actor, organization_id=organization_id, project_id=project_id)
        services.project_weigh(actor=actor, project=project, weight=self.body(WeightBody).weight)
        return project_json(project)


def project_json(row: Project) -> ProjectJson:
    return answer_of(ProjectJson, row, object="project")
