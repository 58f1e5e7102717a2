"""Organizations of a document, which it finds by name."""

from django.core.exceptions import ValidationError

from controlplane.tenants.models import Organization
from controlplane.tenants.selectors import organizations_named


def organization_of(name: str) -> Organization:
    found = organizations_named(name=name)
    if len(found) == 1:
        return found[0]
    told = "There is no organization" if not found else f"There are {len(found)} organizations"
    raise ValidationError({"name": f"{told} of the name {name!r}."})
