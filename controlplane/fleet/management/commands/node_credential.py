"""`manage.py node_credential`: lets a node in. A door to the service, no rules."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from controlplane.core.arguments import arguments_named
from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.services import node_credential_create

POOL_DEFAULT = "default"


class Command(BaseCommand):
    """Prints the credential on standard output, this once, and nothing else there."""

    help = "Register a node and print a credential for it; only its HMAC is kept."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="the node's --name")
        parser.add_argument("--pool", default=POOL_DEFAULT, help="an existing node is moved there")
        parser.add_argument(
            "--model", action="append", metavar="M", help="allowed model, repeatable; default: any"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with arguments_named(name="NAME", pool="--pool", models="--model"):
            made = node_credential_create(
                actor=OPERATOR, name=options["name"], pool=options["pool"], models=options["model"]
            )
        self.stdout.write(made.secret)
        self.stderr.write("Not shown again; the node reads it from SLUICE_NODE_CREDENTIAL.")
