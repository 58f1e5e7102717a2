"""`sluice keys …`: inference keys at the command line. Doors to services, no rules."""

from argparse import ArgumentTypeError
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.core.exceptions import ObjectDoesNotExist
from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.composed.keys.api import key_json
from controlplane.composed.keys.services import KeyOrder, key_make
from controlplane.core.answers import LIMIT_MAX, PageAsk
from controlplane.core.arguments import arguments_named, rows_told
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.ids import public_id, uuid_of
from controlplane.tenants import keys
from controlplane.tenants.models import ApiKey, Organization, Project
from controlplane.tenants.selectors import (
    apikey_get,
    apikey_page,
    organizations_named,
    project_named,
)

COLUMNS = ("id", "label", "redacted_value", "state", "expires_at")
HOUR_S = int(timedelta(hours=1).total_seconds())


class Command(BaseCommand):
    """A secret is printed once, by what makes it, and never again."""

    help = "Create, list, rotate and revoke inference keys."

    def add_arguments(self, parser: CommandParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True)
        create = commands.add_parser("create", help="a new key; prints its secret this once")
        create.add_argument("label", metavar="LABEL")
        create.add_argument("--model", action="append", metavar="NAME", help="only this one")
        create.add_argument("--tag", action="append", default=[], metavar="TAG")
        days = create.add_mutually_exclusive_group()
        days.add_argument("--days", type=int, default=keys.KEY_LIFETIME_DAYS_DEFAULT, metavar="N")
        days.add_argument("--forever", action="store_true", help="never expires")
        listed = commands.add_parser("list", help=f"the newest {LIMIT_MAX}, without secrets")
        for command in (create, listed):
            command.add_argument("--organization", required=True, metavar="NAME")
            command.add_argument("--project", default="", metavar="NAME")
        rotate = commands.add_parser("rotate", help="a successor; the old key ends after a while")
        rotate.add_argument("--overlap-hours", type=int, default=24, metavar="N")
        revoke = commands.add_parser("revoke", help="end a key at once, at every gateway")
        revoke.add_argument("--reason", default="")
        for command in (rotate, revoke):
            command.add_argument("key", type=_id, metavar="KEY", help="its id, key_…")
        for command in (create, listed, rotate, revoke):
            command.add_argument("--json", action="store_true", help="as the API answers")

    def handle(self, *args: Any, **options: Any) -> None:
        names = {"label": "LABEL", "models": "--model", "tags": "--tag", "key": "KEY"}
        more = {"overlap_s": "--overlap-hours", "lifetime_days": "--days", "reason": "--reason"}
        with arguments_named(**names, **more):
            getattr(self, f"_{options['command']}")(options)

    def _create(self, options: dict[str, Any]) -> None:
        organization = _organization(options["organization"])
        order = KeyOrder(
            options["label"],
            keys.KeyTerms(models=options["model"], tags=options["tag"]),
            None if options["forever"] else options["days"],
        )
        project = _project(organization, options["project"] or "default")
        self._show(key_make(actor=OPERATOR, project=project, order=order), options["json"])

    def _list(self, options: dict[str, Any]) -> None:
        organization, project = _organization(options["organization"]), None
        if options["project"]:
            project = _project(organization, options["project"])
        ask = PageAsk(limit=LIMIT_MAX)
        found = apikey_page(
            actor=OPERATOR, organization_id=organization.id, project=project, ask=ask
        )
        rows = [key_json(key) for key in found.rows]
        self.stdout.write(rows_told(rows, COLUMNS, as_json=options["json"]), ending="")

    def _rotate(self, options: dict[str, Any]) -> None:
        overlap_s = options["overlap_hours"] * HOUR_S
        made = keys.apikey_rotate(actor=OPERATOR, key=_key(options["key"]), overlap_s=overlap_s)
        self._show(made, options["json"])

    def _revoke(self, options: dict[str, Any]) -> None:
        key = _key(options["key"])
        keys.apikey_revoke(actor=OPERATOR, key=key, reason=options["reason"])
        told = rows_told([key_json(key)], COLUMNS, as_json=options["json"])
        self.stdout.write(told, ending="")

    def _show(self, made: keys.CreatedKey, as_json: bool) -> None:
        row = {**key_json(made.key), "secret": made.secret}
        told = rows_told([row], (), as_json=True) if as_json else f"{made.secret}\n"
        self.stdout.write(told, ending="")
        if not as_json:
            self.stderr.write(f"{row['id']}: store the secret now, it is not shown again.")


def _id(text: str) -> UUID:
    try:
        return uuid_of(text, "key")
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def _key(key_id: UUID) -> ApiKey:
    try:
        return apikey_get(user=OPERATOR, apikey_id=key_id)
    except ObjectDoesNotExist as error:
        told = "`sluice keys list` has the ids"
        raise CommandError(f"KEY: {public_id('key', key_id)} not found; {told}.") from error


def _organization(name: str) -> Organization:
    found = organizations_named(name=name)
    if len(found) != 1:
        told = "`sluice orgs list` has the names"
        raise CommandError(
            f"--organization: There are {len(found)} organizations called {name!r}; {told}."
        )
    return found[0]


def _project(organization: Organization, name: str) -> Project:
    found = project_named(organization, name=name)
    if found is None:
        raise CommandError(f"--project: {organization.name} has no project {name!r}.")
    return found
