"""Payments that Stripe reports: only what is signed and matches an order of ours moves money."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db import connections
from django.test import override_settings

from controlplane.billing.invoices.services import invoice_issue
from controlplane.billing.months.periods import Period
from controlplane.billing.payments.models import PaymentOrder
from controlplane.billing.payments.selectors import open_invoices
from controlplane.billing.payments.services import payment_order_create
from controlplane.billing.payments.stripe import EVENT_BYTES_MAX
from controlplane.billing.wallets.selectors import wallet_get
from tests.support.money import rows
from tests.support.month import PERIOD, seal_month, seed_month
from tests.support.people import Cast, make_cast
from tests.support.stripe import SECRET, send, send_raw, session_event, signature

CENTS = 12_345
NANO = CENTS * 10_000_000


@pytest.fixture
def cast(database: str) -> Iterator[Cast]:
    with override_settings(STRIPE_WEBHOOK=True, STRIPE_SECRETS=(SECRET,)):
        yield make_cast()


@pytest.fixture
def order(cast: Cast) -> PaymentOrder:
    return payment_order_create(
        actor=cast.alice,
        organization_id=cast.acme.id,
        amount_cents=CENTS,
        becomes_prepaid=True,
    )


def booked() -> list[Any]:
    return rows("SELECT organization, kind, debit, credit, amount FROM journal_entries")


def test_a_top_up_fills_the_wallet_once_however_often_it_is_told(
    cast: Cast, order: PaymentOrder
) -> None:
    first = send(session_event(order))
    again = send(session_event(order))
    twin = send(session_event(order, event="evt_2"))
    assert [answer.status_code for answer in (first, again, twin)] == [200] * 3
    assert [answer.json() for answer in (first, again, twin)] == [
        {"booked": True},
        {"booked": False},
        {"booked": False},
    ]
    acme = cast.acme.id
    assert booked() == [(acme, "topup", "cash:stripe", f"wallet:{acme}", NANO)]
    wallet = wallet_get(actor=cast.alice, organization_id=acme)
    assert wallet is not None and wallet.balance == wallet.available == NANO


def test_eight_at_once_book_one(cast: Cast, order: PaymentOrder) -> None:
    def tell(number: int) -> int:
        try:
            return int(send(session_event(order, event=f"evt_{number % 3}")).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(tell, range(8))) == [200] * 8
    assert len(booked()) == 1


def test_an_intent_may_carry_the_order_in_its_metadata(order: PaymentOrder) -> None:
    intent = {
        "id": "pi_9",
        "object": "payment_intent",
        "amount_received": CENTS,
        "currency": "usd",
        "metadata": {"sluice_order": order.reference},
    }
    event = {"id": "evt_9", "type": "payment_intent.succeeded", "data": {"object": intent}}
    assert send(event).json() == {"booked": True}


def test_an_invoice_is_paid(cast: Cast) -> None:
    seed_month(cast)
    seal_month()
    acme = cast.acme.id
    made = invoice_issue(actor=cast.alice, organization_id=acme, period=Period(PERIOD))
    order = payment_order_create(actor=cast.alice, organization_id=acme, invoice=made)
    assert order.amount_cents == made.total_cents
    assert send(session_event(order)).json() == {"booked": True}
    assert open_invoices(actor=cast.alice, organization_id=acme) == []
    paid = (acme, "payment", "cash:stripe", f"receivable:{acme}", made.total_cents * 10_000_000)
    assert paid in booked()


# Good for five minutes, and a run takes longer: `now` is when the test runs.
FORGED = {
    "no header": "",
    "no signature": "t=1",
    "no time": "v1=" + "0" * 64,
    "two times": "t=1,t=2,v1=" + "0" * 64,
    "a time that is no number": "t=now,v1=" + "0" * 64,
    "a wrong signature": "t={now},v1=" + "0" * 64,
    "an empty signature": "t={now},v1=",
    "letters beyond ASCII": "t={now},v1=é",
    "another scheme": "t={now},v0=" + "0" * 64,
    "too many signatures": "t={now}" + (",v1=" + "0" * 64) * 17,
    "too long": "t=1," + "v1=0," * 1_000,
}


@pytest.mark.parametrize("header", FORGED.values(), ids=FORGED)
def test_a_forged_event_changes_nothing(order: PaymentOrder, header: str) -> None:
    now = str(int(time.time()))
    assert send(session_event(order), header.replace("{now}", now)).status_code == 400
    assert booked() == []


# Five minutes are allowed, to either side; the server looks at its clock somewhat later.
@pytest.mark.parametrize(
    ("secret", "age_s"), [("another-secret", 0), ("", 0), (SECRET, 301), (SECRET, -360)]
)
def test_another_secret_or_time_changes_nothing(
    order: PaymentOrder, secret: str, age_s: int
) -> None:
    body = json.dumps(session_event(order)).encode()
    assert send_raw(body, signature(body, secret, time.time() - age_s)).status_code == 400
    assert booked() == []


def test_a_body_that_was_changed_on_the_way_changes_nothing(order: PaymentOrder) -> None:
    body = json.dumps(session_event(order)).encode()
    assert send_raw(body.replace(b"evt_1", b"evt_2"), signature(body)).status_code == 400
    assert booked() == []


def test_one_good_signature_of_several_is_enough(order: PaymentOrder) -> None:
    body = json.dumps(session_event(order)).encode()
    header = signature(body).replace("v1=", f"v1={'0' * 64},v1=")
    assert send_raw(body, header).json() == {"booked": True}


def test_secrets_can_be_changed_without_a_gap(order: PaymentOrder) -> None:
    body = json.dumps(session_event(order)).encode()
    with override_settings(STRIPE_SECRETS=("whsec_the-next-one", SECRET)):
        assert send_raw(body).json() == {"booked": True}


@pytest.mark.parametrize(
    "changes",
    [
        {"amount_total": CENTS + 1},
        {"amount_total": CENTS * 100},
        {"amount_total": 0},
        {"currency": "eur"},
        {"client_reference_id": None},
        {"client_reference_id": "0" * 65},
        {"client_reference_id": "\0" * 32 + "_" + "\0" * 32},
        {"payment_intent": "x" * 201},
    ],
    ids=str,
)
def test_what_fits_no_order_changes_nothing(order: PaymentOrder, changes: dict[str, Any]) -> None:
    assert send(session_event(order, **changes)).status_code == 409
    assert booked() == []


def test_an_order_of_another_organization_or_provider_changes_nothing(
    cast: Cast, order: PaymentOrder
) -> None:
    stolen = f"{cast.other.id.hex}_{order.id.hex}"
    assert send(session_event(order, client_reference_id=stolen)).status_code == 409
    rows(
        "INSERT INTO payment_orders SELECT gen_random_uuid(), now(), organization, 'bank', 500,"
        " 'USD', 'x', NULL FROM payment_orders"
    )
    ((bank,),) = rows("SELECT id FROM payment_orders WHERE provider = 'bank'")
    reference = f"{cast.acme.id.hex}_{bank.hex}"
    event = session_event(order, client_reference_id=reference, amount_total=500)
    assert send(event).status_code == 409
    assert booked() == []


def test_an_order_is_paid_once(cast: Cast, order: PaymentOrder) -> None:
    """A second payment is real money: it is refused, so that Stripe shows it as failed to us."""
    send(session_event(order))
    assert send(session_event(order, event="evt_2", intent="pi_2")).status_code == 409
    next_order = payment_order_create(
        actor=cast.alice, organization_id=cast.acme.id, amount_cents=CENTS, becomes_prepaid=True
    )
    assert send(session_event(next_order)).status_code == 409
    assert len(booked()) == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"id":"e"}', b"[" * 50_000, b'{"id":1,"type":2,"data":3}'],
)
def test_a_signed_body_that_is_no_event_is_refused(cast: Cast, body: bytes) -> None:
    assert send_raw(body).status_code == 400


def test_events_of_other_kinds_and_unpaid_sessions_are_taken_and_do_nothing(
    order: PaymentOrder,
) -> None:
    other = {**session_event(order), "type": "charge.refunded"}
    assert send(other).json() == {"booked": False}
    assert send(session_event(order, payment_status="unpaid")).json() == {"booked": False}
    assert booked() == []


def test_a_body_beyond_the_bound_is_refused_unread(cast: Cast) -> None:
    assert send_raw(b" " * (EVENT_BYTES_MAX + 1)).status_code == 413


def test_the_door_is_shut_unless_it_is_switched_on(order: PaymentOrder) -> None:
    with override_settings(STRIPE_WEBHOOK=False):
        assert send(session_event(order)).status_code == 400
    assert booked() == []


@pytest.mark.parametrize("secret", ["", "short"])
def test_it_does_not_boot_without_a_secret(secret: str) -> None:
    environment = {**os.environ, "SLUICE_STRIPE_WEBHOOK": "on", "SLUICE_STRIPE_SECRET": secret}
    found = subprocess.run(
        [sys.executable, "-c", "import controlplane.settings"],
        cwd=settings.BASE_DIR,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode != 0
    assert "SLUICE_STRIPE_SECRET" in found.stderr


def test_nothing_of_a_card_is_kept(order: PaymentOrder, caplog: pytest.LogCaptureFixture) -> None:
    send(session_event(order))
    send(session_event(order, event="evt_2", amount_total=7))
    kept = str(
        [
            rows(f"SELECT * FROM {table}")
            for table in ("payments", "payment_orders", "journal_entries", "audit_entries")
        ]
    )
    for secret in ("4242", "visa", "Cara", "2031"):
        # Not within a hexadecimal number: one of many ids has these digits by chance.
        assert not re.search(rf"(?<![0-9a-f-]){secret}(?![0-9a-f-])", kept + caplog.text)


def test_who_may_order(cast: Cast) -> None:
    for actor, refusal in ((cast.bob, PermissionDenied), (cast.charlie, ObjectDoesNotExist)):
        with pytest.raises(refusal):
            payment_order_create(actor=actor, organization_id=cast.acme.id, amount_cents=CENTS)


def test_a_first_top_up_is_not_ordered_unless_it_is_said_what_it_changes(cast: Cast) -> None:
    with pytest.raises(ValidationError) as caught:
        payment_order_create(actor=cast.alice, organization_id=cast.acme.id, amount_cents=CENTS)
    assert list(caught.value.message_dict) == ["becomes_prepaid"]
