"""`manage.py bootstrap_demo`: a first organization, key, model, node and admin. Idempotent."""

from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from controlplane.composed.demo import demo_ensure
from controlplane.embedded.demo import EMBED_CREDENTIAL, NODE_CREDENTIAL, DemoFiles


class Command(BaseCommand):
    """Prints one JSON line: what is new, secrets only this once."""

    help = "Create the demo organization, key, model, node credential and admin if missing."

    def add_arguments(self, parser: CommandParser) -> None:
        """Two switches: replace the nodes' credentials, and make what a node that embeds needs."""
        parser.add_argument("--new-node-credential", action="store_true")
        parser.add_argument("--embed", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        files, renew = DemoFiles(settings.DATA_DIR), options["new_node_credential"]
        with transaction.atomic():
            # Without its file a credential is lost: only its HMAC was kept.
            made = demo_ensure(
                new_node_credential=renew or files.lacks(NODE_CREDENTIAL),
                embed=options["embed"],
                new_embed_credential=renew or files.lacks(EMBED_CREDENTIAL),
            )
            files.keep_credentials(made)
        self.stdout.write(msgspec.json.encode(made).decode())
