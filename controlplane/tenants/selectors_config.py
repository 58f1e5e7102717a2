"""Organizations and projects for who configures the installation, whose right callers check."""

from controlplane.core.scope import organization_scope
from controlplane.tenants.models import Organization, Project


def organizations_all(*, rows_max: int) -> list[Organization]:
    return list(Organization.objects.order_by("id")[:rows_max])


def projects_of(organization: Organization) -> list[Project]:
    with organization_scope([organization.id]):
        return list(Project.objects.filter(organization=organization).order_by("name"))
