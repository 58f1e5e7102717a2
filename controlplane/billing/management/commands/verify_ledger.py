"""`manage.py verify_ledger`: a line per invariant; with `--strict` a breach is exit status 1."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import connections

from controlplane.billing.verification.invariants import Finding, Verifier


class Command(BaseCommand):
    """Checks L1 to L7 as the owner, who sees every row and writes none."""

    help = "Check the ledger's invariants L1 to L7 from its rows."

    def add_arguments(self, parser: CommandParser) -> None:
        """`--strict` turns a breach into exit status 1."""
        parser.add_argument("--strict", action="store_true", help="exit with 1 on any breach")

    def handle(self, *args: Any, **options: Any) -> None:
        with connections["owner"].cursor() as cursor:
            findings = Verifier(cursor).run()
        for finding in findings:
            self.stdout.write(_line(finding))
            for example in finding.examples:
                self.stdout.write(f"   {example}")
        if options["strict"] and any(finding.breaches for finding in findings):
            sys.exit(1)


def _line(finding: Finding) -> str:
    verdict = "ok" if finding.breaches == 0 else f"{finding.breaches} BREACHES"
    return f"{finding.name} {verdict}: {finding.what} ({finding.checked} checked)"
