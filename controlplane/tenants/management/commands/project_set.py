"""`manage.py project_set`: what a project's safety layer does. A door to the service, no rules."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.core.audit import OPERATOR
from controlplane.tenants.models import Project, SafetyMode
from controlplane.tenants.selectors import organizations_named, project_named
from controlplane.tenants.services import project_update


class Command(BaseCommand):
    """Gateways follow within two seconds."""

    help = "Set what the safety layer of a project does with a finding."

    def add_arguments(self, parser: CommandParser) -> None:
        """Which project, and what to do there."""
        parser.add_argument("--organization", required=True, metavar="NAME")
        parser.add_argument("--project", required=True, metavar="NAME")
        parser.add_argument(
            "--safety",
            required=True,
            choices=SafetyMode.values,
            help="off: do not look; flag: look and note; block: keep findings from the client",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Find the project and set it; content logging stays as it is."""
        project = _project(options["organization"], options["project"])
        project_update(
            actor=OPERATOR,
            project=project,
            safety_mode=options["safety"],
            allow_content_logging=project.allow_content_logging,
        )
        self.stdout.write(f"The safety layer of {project.name} is set to {project.safety_mode}.")


def _project(organization_name: str, name: str) -> Project:
    organizations = organizations_named(name=organization_name)
    if not organizations:
        raise CommandError(f"--organization: there is none of the name {organization_name!r}.")
    found = [project for one in organizations if (project := project_named(one, name=name))]
    if not found:
        raise CommandError(f"--project: {organization_name!r} has none of the name {name!r}.")
    if len(found) > 1:
        raise CommandError(f"--organization: {len(found)} have this name and such a project.")
    return found[0]
