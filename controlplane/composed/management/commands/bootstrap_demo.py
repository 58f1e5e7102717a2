"""`manage.py bootstrap_demo`: a first organization, key, model, node and admin. Idempotent."""

from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from controlplane.composed.demo import ADMIN_EMAIL, EMBED_NODE_NAME, NODE_NAME, demo_ensure
from controlplane.embedded.demo import EMBED_CREDENTIAL, NODE_CREDENTIAL, write_private
from controlplane.tenants.sign_in.accounts import SETUP_PATH


class Command(BaseCommand):
    """Prints one JSON line: what is new, secrets only this once."""

    help = "Create the demo organization, key, model, node credential and admin if missing."

    def add_arguments(self, parser: CommandParser) -> None:
        """Two switches: replace the nodes' credentials, and make what a node that embeds needs."""
        parser.add_argument("--new-node-credential", action="store_true")
        parser.add_argument("--embed", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        secrets = settings.DATA_DIR / "secrets"
        node, embed = secrets / NODE_CREDENTIAL, secrets / EMBED_CREDENTIAL
        renew = options["new_node_credential"]
        with transaction.atomic():
            # Without its file a credential is lost: only its HMAC was kept.
            made = demo_ensure(
                new_node_credential=renew or not node.exists(),
                embed=options["embed"],
                new_embed_credential=renew or not embed.exists(),
            )
            for file, secret in ((node, made.node_credential), (embed, made.embed_credential)):
                if secret is not None:
                    write_private(file, secret + "\n")
        answer = {
            "first_start": made.first_start,
            "api_key": made.api_key,
            "node_credential": made.node_credential,
            "setup_path": made.setup_token and f"{SETUP_PATH}{made.setup_token}",
            "node_name": NODE_NAME,
            "embed_credential": made.embed_credential,
            "embed_name": EMBED_NODE_NAME,
            "admin_email": ADMIN_EMAIL,
        }
        self.stdout.write(msgspec.json.encode(answer).decode())
