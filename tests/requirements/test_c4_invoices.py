"""C4: a month from the ledger to its payment by API, and a prepaid balance that bounds spending."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client, override_settings

from controlplane.billing.approvals.models import GrantKind
from controlplane.billing.ledger.accounts import wallet_id
from controlplane.billing.payments.models import PaymentOrder
from controlplane.billing.wallets.services import Gift, wallet_grant
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.models import uuid7
from controlplane.core.permissions import organization_scope
from controlplane.kernel.ids import uuid_of
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.money import budget_row, rows
from tests.support.month import PERIOD, START, seal_month, seed_month
from tests.support.orm import orm
from tests.support.people import make_cast, signed_in
from tests.support.product import Product, running_product, verify_ledger
from tests.support.servers import Servers
from tests.support.stripe import SECRET, send, session_event

TOKENS = 7
ANSWERS_MAX = 400


def post(client: Client, path: str, **body: Any) -> Any:
    """The answer to a change that works."""
    answer = client.post(path, body, content_type="application/json")
    assert answer.status_code == 201, answer.content
    return answer.json()


def test_from_the_ledger_to_its_payment(database: str) -> None:
    """Finance previews and issues October, pays it through Stripe, and all figures agree."""
    cast = make_cast()
    month = seed_month(cast)
    seal_month()
    finance, mine = signed_in(cast.alice), f"/api/billing/organizations/{cast.acme.id}"
    preview = finance.get(f"{mine}/invoices/preview", {"period": PERIOD}).json()
    drafts = [
        finance.get("/invoices/preview", {"period": PERIOD, "form": form})
        for form in ("pdf", "csv")
    ]
    made = post(finance, f"{mine}/invoices", period=PERIOD)
    assert drafts[0].content.startswith(b"%PDF-")
    assert f'filename="Draft-{PERIOD}.csv"' in drafts[1]["Content-Disposition"]
    issued = finance.get(f"{mine}/invoices/{made['id']}.csv").content
    assert drafts[1].content == issued.replace(b"INV-000001", b"Draft")
    assert (preview["number"], preview["state"]) == ("Draft", "draft")
    assert made["lines"] == preview["lines"] and made["total_cents"] == preview["total_cents"]
    assert made["number"] == "INV-000001"
    assert made["subtotal_nano"] == month.owed(cast.acme.id)
    assert sum(line["amount_pico"] for line in made["lines"]) == made["subtotal_nano"] * 1_000
    exact = made["net_cents"] * 10_000_000 - made["rounding_nano"]
    assert exact == made["subtotal_nano"]
    again = finance.post(f"{mine}/invoices", {"period": PERIOD}, content_type="application/json")
    assert again.status_code == 409
    files = [finance.get(f"{mine}/invoices/{made['id']}.{form}") for form in ("pdf", "csv", "pdf")]
    assert [answer.status_code for answer in files] == [200] * 3
    assert files[0].content == files[2].content
    assert finance.get(f"{mine}/standing").json()["open_cents"] == made["total_cents"]

    ordered = post(finance, f"{mine}/payment-orders", invoice=made["id"])
    with organization_scope([cast.acme.id]):
        order = PaymentOrder.objects.get(id=uuid_of(ordered["id"], "order"))
    with override_settings(STRIPE_WEBHOOK=True, STRIPE_SECRETS=(SECRET,)):
        assert send(session_event(order)).json() == {"booked": True}
        assert send(session_event(order)).json() == {"booked": False}
    paid = finance.get(f"{mine}/invoices/{made['id']}").json()
    assert (paid["state"], paid["open_cents"]) == ("paid", 0)
    assert paid["payments"][0]["amount_cents"] == made["total_cents"]
    assert finance.get(f"{mine}/standing").json() == {
        "stage": "settled",
        "open_cents": 0,
        "credit_cents": 0,
        "invoices": [],
    }


def test_staff_correct_it_by_a_note_and_a_large_top_up_takes_two(database: str) -> None:
    cast = make_cast()
    seed_month(cast)
    seal_month()
    mine = f"/api/billing/organizations/{cast.acme.id}"
    finance, staff = signed_in(cast.alice), signed_in(cast.stella)
    made = post(finance, f"{mine}/invoices", period=PERIOD)
    notes = f"{mine}/invoices/{made['id']}/credit-notes"
    refused = finance.post(notes, {"reason": "mine"}, content_type="application/json")
    assert refused.status_code == 403
    lines = [{"position": 1, "amount_nano": 1_000_000}]
    note = post(staff, notes, reason="one answer was cut", lines=lines)
    assert (note["number"], note["corrects"]) == ("CN-000001", made["id"])
    rest = post(staff, notes, reason="all of it")
    # What was given back of September's requests stays given: the note does not take it again.
    ((kept,),) = rows(
        "SELECT sum(amount) FROM journal_entries WHERE organization = %s AND kind = 'reversal'"
        " AND reverses < request_floor(%s)",
        cast.acme.id,
        START,
    )
    assert note["total_cents"] + rest["total_cents"] == made["total_cents"] + round(kept / 10**7)

    large = {"kind": "topup", "amount_nano": 5_000_000_000_000, "reason": "transfer 9"}
    # The first top-up changes how they pay, which has to be said.
    unsaid = staff.post(f"{mine}/grants", large, content_type="application/json")
    assert unsaid.status_code == 400 and "becomes_prepaid" in unsaid.content.decode()
    grant = post(staff, f"{mine}/grants", **large, becomes_prepaid=True)
    assert grant["state"] == "pending"
    approve = f"{mine}/grants/{grant['id']}/approve"
    assert staff.post(approve, {}, content_type="application/json").status_code == 403
    assert finance.get(f"{mine}/wallet").json()["prepaid"] is False
    rows("UPDATE users SET is_staff = true WHERE email = 'charlie@example.org'")
    second = signed_in(cast.charlie)
    assert second.post(approve, {}, content_type="application/json").status_code == 200
    assert finance.get(f"{mine}/wallet").json()["balance_nano"] == 5_000_000_000_000


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers) as product:
        yield product


async def test_a_prepaid_organization_is_served_until_its_balance_ends(product: Product) -> None:
    """Not a nano-USD further: what is left is less than a request may cost."""
    ((organization,),) = rows("SELECT id FROM organizations")
    async with open_client(product.urls[0]) as client:
        probe = await ask(client, product.key, make_body(tokens=TOKENS))
        ((held, cost),) = rows(
            "SELECT max(amount) FILTER (WHERE slot = 0), sum(amount) FILTER (WHERE slot > 0)"
            " FROM transfers WHERE request = %s",
            uuid.UUID(hex=probe.request),
        )
        balance = held + 10 * int(cost)
        await orm(_top_up)(organization, balance)
        answers: list[Answer] = []
        while len(answers) < ANSWERS_MAX and (not answers or answers[-1].status == 200):
            answers.append(await ask(client, product.key, make_body(tokens=TOKENS)))
            # Gateways hear of a wallet within two seconds of its making.
            await asyncio.sleep(0.05)
    assert answers[-1].status == 429
    assert answers[-1].error["code"] == "insufficient_quota"
    posted, open_now, over = budget_row(wallet_id(organization))
    assert (open_now, over) == (0, 0)
    assert balance - held < posted <= balance
    debited = rows("SELECT sum(amount) FROM transfers WHERE debit LIKE 'wallet:%%' AND slot > 0")
    assert debited == [(posted,)]
    await verify_ledger()


def _top_up(organization: uuid.UUID, nano: int) -> None:
    wallet_grant(
        actor=OPERATOR,
        organization_id=organization,
        gift=Gift(kind=GrantKind.TOPUP, amount_nano=nano, reason="a small transfer"),
        form=uuid7(),
        becomes_prepaid=True,
    )
