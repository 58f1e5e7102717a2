"""Names by id, for files and pages of one organization; whoever asks has been let in already."""

import uuid

from controlplane.core.scope import organization_scope
from controlplane.tenants.models import ApiKey, Organization, Project


def names_of(organization_id: uuid.UUID) -> tuple[str, dict[uuid.UUID, str], dict[uuid.UUID, str]]:
    """The organization's name, its projects' and its keys' by id; raises DoesNotExist."""
    with organization_scope([organization_id]):
        name = Organization.objects.values_list("name", flat=True).get(id=organization_id)
        projects = Project.objects.filter(organization_id=organization_id)
        keys = ApiKey.objects.filter(organization_id=organization_id)
        return (
            name,
            dict(projects.values_list("id", "name")),
            dict(keys.values_list("id", "label")),
        )
