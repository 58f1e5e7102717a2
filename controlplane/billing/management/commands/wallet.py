"""`manage.py wallet …`: top-ups and credits at the command line. Doors to services, no rules."""

import uuid
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.billing.approvals.models import WALLET_KINDS, GrantKind, GrantState, WalletGrant
from controlplane.billing.approvals.selectors import grants_pending
from controlplane.billing.approvals.shapes import grant_json
from controlplane.billing.decisions.services import grant_refuse
from controlplane.billing.documents.text import usd_read
from controlplane.billing.wallets.api import wallet_json
from controlplane.billing.wallets.selectors import wallet_get
from controlplane.billing.wallets.services import Gift, wallet_grant
from controlplane.core.arguments import arguments_named, rows_told
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.models import uuid7
from controlplane.kernel.ids import public_id, uuid_of
from controlplane.kernel.money import usd_text
from controlplane.tenants.selectors import organizations_named


class Command(BaseCommand):
    """A large grant of the operator waits for a user of staff, who alone can approve grants."""

    help = "Show a wallet, add funds or credit, and decide on pending approvals."

    def add_arguments(self, parser: CommandParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True)
        show = commands.add_parser("show", help="balance of an organization")
        show.add_argument("organization", metavar="NAME")
        give = commands.add_parser("give", help="a received top-up, or a credit")
        give.add_argument("organization", metavar="NAME")
        give.add_argument("--kind", choices=[*WALLET_KINDS], default=GrantKind.TOPUP.value)
        give.add_argument("--usd", required=True, metavar="25.00")
        give.add_argument("--reason", required=True)
        give.add_argument(
            "--becomes-prepaid", action="store_true", help="confirm an organization's first top-up"
        )
        pending = commands.add_parser("pending", help="pending approvals")
        refuse = commands.add_parser("refuse", help="refuse a pending grant")
        refuse.add_argument("grant", metavar="ID", type=_grant_id)
        for command in (show, give, pending, refuse):
            command.add_argument("--json", action="store_true", help="as the API answers")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"_{options['command']}")(options)

    def _show(self, options: dict[str, Any]) -> None:
        found = wallet_get(actor=OPERATOR, organization_id=_organization(options["organization"]))
        if options["json"]:
            self.stdout.write(rows_told([wallet_json(found)], (), as_json=True), ending="")
            return
        if found is None:
            self.stdout.write("The organization has no wallet: it pays by invoice.")
            return
        self.stdout.write(
            f"balance {usd_text(found.balance)} USD, held {usd_text(found.held)}, paid in "
            f"{usd_text(found.put_in)}, charged {usd_text(found.charged)}"
        )

    def _give(self, options: dict[str, Any]) -> None:
        with arguments_named(
            amount="--usd", reason="--reason", becomes_prepaid="--becomes-prepaid"
        ):
            made = wallet_grant(
                actor=OPERATOR,
                organization_id=_organization(options["organization"]),
                gift=Gift(
                    kind=GrantKind(options["kind"]),
                    amount_nano=_nano(options["usd"]),
                    reason=options["reason"],
                ),
                form=uuid7(),
                becomes_prepaid=options["becomes_prepaid"],
            )
        self._tell(made, options)

    def _pending(self, options: dict[str, Any]) -> None:
        for grant in grants_pending(actor=OPERATOR):
            self._tell(grant, options)

    def _tell(self, grant: WalletGrant, options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(rows_told([grant_json(grant)], (), as_json=True), ending="")
        else:
            self.stdout.write(_line(grant))

    def _refuse(self, options: dict[str, Any]) -> None:
        found = [grant for grant in grants_pending(actor=OPERATOR) if grant.id == options["grant"]]
        if not found:
            raise CommandError("No such pending grant.")
        with arguments_named():
            made = grant_refuse(actor=OPERATOR, grant=found[0])
        self._tell(made, options)


def _grant_id(text: str) -> uuid.UUID:
    return uuid_of(text, "grant")


def _organization(name: str) -> uuid.UUID:
    found = organizations_named(name=name)
    if len(found) != 1:
        raise CommandError(f"There are {len(found)} organizations called {name!r}.")
    return found[0].id


def _nano(text: str) -> int:
    try:
        return usd_read(text)
    except ValueError as error:
        raise CommandError(f"--usd: {error}") from error


def _line(grant: WalletGrant) -> str:
    waits = " (pending approval)" if grant.state == GrantState.PENDING else ""
    amount = usd_text(grant.amount_nano)
    about = f" {grant.about}" if grant.about else ""
    told = f"{grant.kind}{about} {amount} USD {grant.state}{waits}: {grant.reason}"
    return f"{public_id('grant', grant.id)} {told}"
