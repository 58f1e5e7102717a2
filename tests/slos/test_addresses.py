"""Addresses of channels are secrets: sealed where they are kept, and told nowhere."""

from __future__ import annotations

import json
import uuid

import pytest
from django.conf import settings
from django.core.exceptions import ValidationError
from pytest import MonkeyPatch

from controlplane.core.outbound import NotReached
from controlplane.core.seal import BrokenSeal
from controlplane.slos import selectors, services
from controlplane.slos.channels import messages
from controlplane.slos.channels.delivery import address_digest, address_kept, address_of
from controlplane.slos.models import EVERYONE, Delivery
from controlplane.slos.shapes import channel_json
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in

SECRET = "T0PQRSTUV/B0WXYZABC/kR7fJw2mQx9LpZ4tNv8s"
SLACK = f"https://hooks.slack.example/services/{SECRET}"


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def test_an_address_is_opened_in_its_own_row_alone(monkeypatch: MonkeyPatch) -> None:
    channel, organization, other = (uuid.uuid4() for _ in range(3))
    kept = address_kept(channel, organization, "slack", SLACK)
    assert address_of(channel, organization, kept.sealed) == SLACK
    for moved in ((other, organization), (channel, other)):
        with pytest.raises(BrokenSeal):
            address_of(*moved, kept.sealed)
    assert kept.digest == address_digest(organization, "slack", SLACK)
    assert kept.digest != address_digest(other, "slack", SLACK)
    monkeypatch.setattr(settings, "WEBHOOK_KEY", b"another key, as long as keys have to be")
    with pytest.raises(BrokenSeal):
        address_of(channel, organization, kept.sealed)
    assert kept.digest != address_digest(organization, "slack", SLACK)


@pytest.mark.parametrize(
    ("kind", "address", "shown"),
    [
        ("slack", SLACK, "hooks.slack.example/…Nv8s"),
        ("webhook", "https://in.example:8443/a?token=abcdefghijklm", "in.example:8443/…jklm"),
        ("webhook", "https://in.example/sluice", "in.example/…"),
        ("webhook", "https://in.example?k=1", "in.example/…"),
        ("webhook", "https://in.example/", "in.example"),
        ("webhook", "https://in.example", "in.example"),
        ("email", "ops@example.org", "ops@example.org"),
    ],
)
def test_people_see_its_host_and_its_end(kind: str, address: str, shown: str) -> None:
    assert address_kept(uuid.uuid4(), EVERYONE, kind, address).shown == shown


def test_neither_tables_nor_pages_nor_the_api_tell_it(cast: Cast) -> None:
    made = services.channel_add(
        actor=cast.alice, organization=cast.acme.id, kind="slack", address=SLACK
    )
    with pytest.raises(ValidationError, match="already exists"):
        services.channel_add(
            actor=cast.alice, organization=cast.acme.id, kind="slack", address=SLACK
        )
    (kept,) = selectors.channel_list(actor=cast.alice, organization=cast.acme.id)
    assert address_of(kept.id, kept.organization, bytes(kept.sealed)) == SLACK
    assert channel_json(made, secret=True)["address"] == "hooks.slack.example/…Nv8s"
    page = signed_in(cast.alice).get("/slos").content.decode()
    assert "hooks.slack.example/…Nv8s" in page
    services.channel_remove(actor=cast.alice, organization=cast.acme.id, channel_id=made.id)
    told = json.dumps([
        page,
        rows("SELECT detail::text, before::text, after::text FROM audit_entries"),
    ])  # fmt: skip
    assert "slo_channel" in json.dumps(rows("SELECT action FROM audit_entries"))
    assert not [part for part in SECRET.split("/") if part in told]


def test_under_another_key_a_message_says_what_to_do(cast: Cast, monkeypatch: MonkeyPatch) -> None:
    made = services.channel_add(
        actor=cast.alice, organization=cast.acme.id, kind="slack", address=SLACK
    )
    monkeypatch.setattr(settings, "WEBHOOK_KEY", b"another key, as long as keys have to be")
    with pytest.raises(NotReached, match="remove the channel and add it again"):
        messages.address_to(Delivery(kind="slack", channel=made))
