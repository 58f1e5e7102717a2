"""The page *Connections*: adding, testing, choosing and pricing models, rotating keys, removing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from controlplane.catalog.models import Model
from controlplane.catalog.services import purchase_list
from controlplane.connections.models import Connection, ConnectionKey
from controlplane.connections.offers import offers_set
from controlplane.core.audit.entries import OPERATOR
from tests.support.hosted import (
    SECRET,
    UPSTREAM,
    HostedProvider,
    hosted_provider,
    make_connection,
    offer,
)
from tests.support.people import make_cast, sign_in

pytestmark = pytest.mark.usefixtures("database")
PRICED = {
    "m0-upstream": UPSTREAM,
    "m0-model": "loop",
    "m0-context_window": "8000",
    "m0-output_max": "1000",
    **{f"m0-purchase_{name}_pico": "1.00" for name in ("input", "output")},
    "m0-purchase_cached_pico": "0.50",
    **{f"m0-sale_{name}_pico": "2.00" for name in ("input", "output")},
    "m0-sale_cached_pico": "0.50",
}


@pytest.fixture
def provider() -> Iterator[HostedProvider]:
    with hosted_provider() as made:
        yield made


@pytest.fixture
def staff(client: Client) -> Client:
    """Signed in, and confirmed by that."""
    sign_in(client, make_cast().stella)
    return client


def act(staff: Client, connection: Connection, act: str, **fields: str) -> str:
    path = f"/connections/connection_{connection.id.hex}/act"
    return staff.post(path, {"act": act, **fields}, follow=True).content.decode()


def test_a_connection_is_added_with_its_key_tested_and_priced(
    staff: Client, provider: HostedProvider
) -> None:
    assert "No connections yet" in staff.get("/connections").content.decode()
    given = {"name": "loop", "kind": "other", "url": provider.url, "secret": SECRET}
    shown = staff.post("/connections/add", given, follow=True).content.decode()
    connection = Connection.objects.get()
    assert SECRET not in shown and f"…{SECRET[-4:]}" in shown
    assert "2 models are listed" in act(staff, connection, "test")
    chosen = act(staff, connection, "choose", upstream=UPSTREAM, others="")
    assert 'name="m0-context_window"' in chosen and "gpt-other" in chosen
    looked = act(staff, connection, "offer", **PRICED)
    # Cached input earns nothing.
    assert "Save these models and prices?" in looked and "0 %" in looked
    assert not Model.objects.filter(name="loop").exists()
    assert "are saved" in act(staff, connection, "offer", looked="1", **PRICED)
    assert Model.objects.get(name="loop").enabled
    assert "key works" in staff.get("/connections").content.decode()


def test_what_is_wrong_is_told_where_it_was_typed_and_no_secret_is_repeated(staff: Client) -> None:
    given = {"name": "a b", "kind": "openai", "url": "", "secret": SECRET}
    answer = staff.post("/connections/add", given)
    assert answer.status_code == 422 and SECRET not in answer.content.decode()
    assert not Connection.objects.exists()
    connection = make_connection()
    wrong = act(staff, connection, "offer", **{**PRICED, "m0-sale_input_pico": "cheap"})
    assert "Must be dollars per million tokens" in wrong
    part = {**PRICED, "m0-purchase_cached_pico": ""}
    assert "Enter all three prices" in act(staff, connection, "offer", **part)
    dear = {**PRICED, "m0-purchase_cached_pico": "9"}
    assert "Must not be above" in act(staff, connection, "offer", looked="1", **dear)
    assert "8 to 500" in act(staff, connection, "key", secret="short")


def test_a_model_whose_cost_is_not_known_has_a_sale_price_alone(staff: Client) -> None:
    connection = make_connection()
    free = {name: "" if "purchase" in name else text for name, text in PRICED.items()}
    assert "Save these models" in act(staff, connection, "offer", **free)
    assert "are saved" in act(staff, connection, "offer", looked="1", **free)
    assert purchase_list(model=Model.objects.get(name="loop")) == []
    assert "no key" in staff.get("/connections").content.decode()


def test_shipped_prices_are_a_start(staff: Client) -> None:
    connection = make_connection()
    chosen = act(staff, connection, "choose", upstream="gpt-4o", others="my-own")
    assert 'value="2.50"' in chosen and 'value="128000"' in chosen
    assert 'value="my-own"' in chosen


def test_keys_are_rotated_and_the_connection_goes(staff: Client) -> None:
    connection = make_connection()
    offers_set(actor=OPERATOR, connection=connection, drafts=[offer()])
    for secret in ("first-secret", "second-secret"):
        act(staff, connection, "key", secret=secret)
    old, page = ConnectionKey.objects.earliest("id"), f"/connections/connection_{connection.id.hex}"
    assert "Retire one of them" in staff.get(page).content.decode()
    assert "is deleted" in act(staff, connection, "retire", key=f"connectionkey_{old.id.hex}")
    assert "is disabled" in act(staff, connection, "switch")
    assert "is enabled" in act(staff, connection, "switch")
    assert "No longer chosen: gpt-4o" in act(staff, connection, "choose", others="")
    assert "is removed" in act(staff, connection, "remove")
    assert not Model.objects.get(name="gpt-4o").enabled
    assert staff.get(page).status_code == 404


def test_nobody_else_sees_connections(client: Client) -> None:
    sign_in(client, make_cast().alice)
    assert client.get("/connections").status_code == 403
    assert "Connections" not in client.get("/").content.decode()
