"""`manage.py project_set`: what a project decides about its requests, and its share. A door."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.core.arguments import arguments_named
from controlplane.core.audit.entries import OPERATOR
from controlplane.tenants.models import WEIGHT_MAX, WEIGHT_MIN, Project, SafetyMode
from controlplane.tenants.selectors import organizations_named, project_named
from controlplane.tenants.services import project_update, project_weigh


class Command(BaseCommand):
    """Gateways follow within two seconds."""

    help = (
        "Set what the safety layer of a project does with a finding, whether prompt text may be "
        "kept, and its scheduling weight."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--organization", required=True, metavar="NAME")
        parser.add_argument("--project", required=True, metavar="NAME")
        parser.add_argument(
            "--safety",
            choices=SafetyMode.values,
            help="off: no check; flag: record findings; block: withhold findings from the client",
        )
        parser.add_argument(
            "--content",
            choices=["on", "off"],
            help="on: text around a change that broke the prefix cache is kept with the request",
        )
        parser.add_argument(
            "--weight",
            type=int,
            metavar="N",
            help=f"scheduling weight when tenants compete for full nodes, {WEIGHT_MIN} to "
            f"{WEIGHT_MAX}",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        safety, content, weight = options["safety"], options["content"], options["weight"]
        if safety is content is weight is None:
            raise CommandError("Set one or more of --safety, --content and --weight.")
        project = _project(options["organization"], options["project"])
        if safety is not None or content is not None:
            project_update(
                actor=OPERATOR,
                project=project,
                safety_mode=safety or project.safety_mode,
                allow_content_logging=content == "on"
                if content is not None
                else project.allow_content_logging,
            )
        if safety is not None:
            self.stdout.write(f"The safety layer of {project.name} is set to {safety}.")
        if content is not None:
            self.stdout.write(f"Keeping text of prompts of {project.name} is {content}.")
        if weight is not None:
            with arguments_named(weight="--weight"):
                project_weigh(actor=OPERATOR, project=project, weight=weight)
            self.stdout.write(f"The weight of {project.name} is set to {weight}.")


def _project(organization_name: str, name: str) -> Project:
    organizations = organizations_named(name=organization_name)
    if not organizations:
        raise CommandError(f"--organization: {organization_name!r} not found.")
    found = [project for one in organizations if (project := project_named(one, name=name))]
    if not found:
        raise CommandError(f"--project: {name!r} not found in {organization_name!r}.")
    if len(found) > 1:
        raise CommandError(
            f"--organization: {len(found)} organizations have this name and such a project."
        )
    return found[0]
