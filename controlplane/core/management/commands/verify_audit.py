"""`manage.py verify_audit`: follows the chain over the audit; `--strict` exits 1 on a breach."""

import sys
from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import connections

from controlplane.core.audit.chain import ChainHead, ChainVerifier, head_from


class Command(BaseCommand):
    """Checks as the owner, who sees every row and writes none."""

    help = "Check that no audit row was changed, removed or inserted."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--strict", action="store_true", help="exit with 1 on any breach")
        parser.add_argument(
            "--contains",
            type=_head,
            metavar="NUMBER:DIGEST",
            help="a head that was recorded earlier",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with connections["owner"].cursor() as cursor:
            verifier = ChainVerifier(cursor)
            breaches = list(verifier.breaches(options["contains"]))
        for breach in breaches:
            self.stdout.write(f"BREACH: {breach}")
        verdict = f"{len(breaches)} BREACHES" if breaches else "ok"
        told = f"{verifier.checked} rows linked, {verifier.waiting} wait, head {verifier.head}"
        self.stdout.write(f"audit {verdict}: {told}")
        if options["strict"] and breaches:
            sys.exit(1)


def _head(text: str) -> ChainHead:
    try:
        return head_from(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
