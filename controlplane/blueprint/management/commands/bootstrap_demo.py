"""`manage.py bootstrap_demo`: a first organization, key, model, node and admin. Idempotent."""

from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from controlplane.blueprint.demo import NODE_NAME, demo_ensure
from controlplane.core.embedded.demo import write_private
from controlplane.tenants.management.commands.setup_link import SETUP_PATH


class Command(BaseCommand):
    """Prints one JSON line: what is new, secrets only this once."""

    help = "Make the demo organization, key, model, node credential and admin where missing."

    def add_arguments(self, parser: CommandParser) -> None:
        """One switch: replace the node's credential."""
        parser.add_argument("--new-node-credential", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make what is missing and print it."""
        file = settings.DATA_DIR / "secrets" / "node-credential"
        # Without its file the credential is lost: only its HMAC was kept.
        renew = options["new_node_credential"] or not file.exists()
        with transaction.atomic():
            made = demo_ensure(new_node_credential=renew)
            if made.node_credential is not None:
                write_private(file, made.node_credential + "\n")
        answer = {
            "first_start": made.first_start,
            "api_key": made.api_key,
            "node_credential": made.node_credential,
            "setup_path": made.setup_token and f"{SETUP_PATH}{made.setup_token}",
            "node_name": NODE_NAME,
        }
        self.stdout.write(msgspec.json.encode(answer).decode())
