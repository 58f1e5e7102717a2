"""Connections: their bounds, sealed keys, models with prices, and what the connector is told."""

from __future__ import annotations

import msgspec
import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.utils import timezone

from controlplane.catalog.models import Model, PurchasePrice
from controlplane.catalog.selectors import model_find, prices_in_force
from controlplane.catalog.services import PurchaseDraft
from controlplane.connections.feed import Feed, connections_served, feed_line, feed_read
from controlplane.connections.keys import key_add, key_opened, key_retire
from controlplane.connections.models import Connection, ConnectionKey
from controlplane.connections.offers import connection_remove, offers_of, offers_set
from controlplane.connections.pricelist import price_list_of, price_lists
from controlplane.connections.probe import ProbeOutcome, connection_test
from controlplane.connections.services import (
    POOL,
    ConnectionDraft,
    connection_change,
    connection_create,
    connection_enable,
)
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.seal import BrokenSeal
from controlplane.fleet.models import DigestState, ModelDigest
from inference.engines.hosted.configuration import read_configuration
from tests.support.hosted import SECRET, UPSTREAM, hosted_provider, make_connection, offer
from tests.support.money import rows
from tests.support.people import make_cast

pytestmark = pytest.mark.usefixtures("database")


def everything_stored() -> str:
    """All rows of all tables of this database, as text."""
    tables = rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    found = [rows(f'SELECT t::text FROM "{table}" t') for (table,) in tables]
    return "\n".join(text for each in found for (text,) in each)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("name", {"name": "No Spaces"}),
        ("kind", {"kind": "elsewhere"}),
        ("url", {"url": "ftp://api.openai.com"}),
        ("url", {"url": "https://user:word@api.openai.com/v1"}),
        ("url", {"url": "http://api.openai.com/v1"}),
        ("url", {"url": "https://api.openai.com/v1?key=1"}),
        ("region", {"region": "EU West"}),
        ("api_version", {"kind": "azure", "url": "https://x.openai.azure.com"}),
    ],
)
def test_what_is_wrong_is_named(field: str, changes: dict[str, str]) -> None:
    with pytest.raises(ValidationError) as failure:
        make_connection(**changes)
    assert list(failure.value.message_dict) == [field]


def test_only_staff_have_connections() -> None:
    cast = make_cast()
    connection = make_connection()
    draft = ConnectionDraft(name="mine", kind="openai", url="https://api.openai.com/v1")
    for attempt in (
        lambda: connection_create(actor=cast.alice, draft=draft),
        lambda: key_add(actor=cast.alice, connection=connection, secret=SECRET),
        lambda: offers_set(actor=cast.alice, connection=connection, drafts=[]),
        lambda: connection_test(actor=cast.alice, connection=connection),
        lambda: connection_remove(actor=cast.alice, connection=connection),
    ):
        with pytest.raises(PermissionDenied):
            attempt()


def test_a_name_is_taken_until_its_connection_is_removed() -> None:
    first = make_connection()
    with pytest.raises(ValidationError, match="already exists"):
        make_connection()
    connection_remove(actor=OPERATOR, connection=first)
    assert make_connection().name == "openai-eu"


def test_the_database_never_holds_a_secret() -> None:
    connection = make_connection()
    key = key_add(actor=OPERATOR, connection=connection, secret=SECRET)
    assert key_opened(ConnectionKey.objects.get(id=key.id)) == SECRET
    assert key.shown == SECRET[-4:]
    stored = everything_stored()
    assert SECRET not in stored and SECRET.encode().hex() not in stored
    (told,) = rows("SELECT detail FROM audit_entries WHERE action = 'connection_key.add'")
    assert told[0] == {"connection": "openai-eu", "key": f"…{SECRET[-4:]}"}


def test_a_sealed_key_opens_in_its_own_row_alone() -> None:
    one, other = make_connection(), make_connection(name="other")
    first = key_add(actor=OPERATOR, connection=one, secret=SECRET)
    second = key_add(actor=OPERATOR, connection=other, secret="another-secret")
    ConnectionKey.objects.filter(id=second.id).update(sealed=first.sealed)
    with pytest.raises(BrokenSeal):
        key_opened(ConnectionKey.objects.get(id=second.id))


def test_two_keys_overlap_and_the_old_one_is_forgotten() -> None:
    connection = make_connection()
    old = key_add(actor=OPERATOR, connection=connection, secret="the-old-secret")
    new = key_add(actor=OPERATOR, connection=connection, secret=SECRET)
    with pytest.raises(ValidationError, match="retire one"):
        key_add(actor=OPERATOR, connection=connection, secret="a-third-secret")
    offers_set(actor=OPERATOR, connection=connection, drafts=[offer()])
    (told,) = feed_read().connections
    assert [key.secret for key in told.keys] == [SECRET, "the-old-secret"]
    key_retire(actor=OPERATOR, connection=connection, key_id=old.id)
    assert ConnectionKey.objects.get(id=old.id).sealed is None
    (told,) = feed_read().connections
    assert [key.id for key in told.keys] == [str(new.id)]


def test_models_are_added_with_what_they_cost_and_are_sold_for() -> None:
    connection = make_connection()
    offers_set(actor=OPERATOR, connection=connection, drafts=[offer(vision=True)])
    model = model_find(name="gpt-4o")
    assert model is not None and (model.pool, model.context_window) == (POOL, 128_000)
    assert model.images_max > 0
    digest = ModelDigest.objects.get(model="gpt-4o")
    assert (digest.digest, digest.state) == ("", DigestState.APPROVED)
    bought = PurchasePrice.objects.get(model=model)
    assert (bought.input_pico, bought.output_pico) == (2_500_000, 10_000_000)
    assert prices_in_force(at=timezone.now())[model.id].output_pico == 12_000_000
    # The same again changes nothing.
    offers_set(actor=OPERATOR, connection=connection, drafts=[offer(vision=True)])
    assert PurchasePrice.objects.count() == 1


def test_a_price_that_is_wrong_names_its_place_and_nothing_is_changed() -> None:
    connection = make_connection()
    wrong = PurchaseDraft(input_pico=1, cached_pico=2, output_pico=3)
    drafts = [offer(), offer(model="b", sale=wrong)]
    with pytest.raises(ValidationError) as failure:
        offers_set(actor=OPERATOR, connection=connection, drafts=drafts)
    assert list(failure.value.message_dict) == ["models[1].sale.cached_pico"]
    assert offers_of(connection) == [] and not Model.objects.filter(name="gpt-4o").exists()


def test_a_model_is_bought_in_one_place() -> None:
    offers_set(actor=OPERATOR, connection=make_connection(), drafts=[offer()])
    with pytest.raises(ValidationError, match="served by the connection 'openai-eu'"):
        offers_set(actor=OPERATOR, connection=make_connection(name="second"), drafts=[offer()])


def test_withdrawn_models_are_switched_off_and_come_back() -> None:
    connection = make_connection()
    offers_set(actor=OPERATOR, connection=connection, drafts=[offer(), offer(model="b")])
    offers_set(actor=OPERATOR, connection=connection, drafts=[offer(model="b")])
    assert not Model.objects.get(name="gpt-4o").enabled
    offers_set(actor=OPERATOR, connection=connection, drafts=[offer(), offer(model="b")])
    assert Model.objects.get(name="gpt-4o").enabled


def test_the_connector_is_told_of_what_can_be_served_and_of_nothing_else() -> None:
    connection = make_connection(region="eu")
    assert not connections_served()
    offers_set(actor=OPERATOR, connection=connection, drafts=[offer()])
    # Without a key the provider would refuse.
    assert connections_served() and feed_read() == Feed([])
    key = key_add(actor=OPERATOR, connection=connection, secret=SECRET)
    line = feed_line(feed_read())
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert msgspec.json.decode(line) == {
        "connections": [
            {
                "name": "openai-eu",
                "kind": "openai",
                "url": "https://api.openai.com/v1",
                "api_version": "",
                "region": "eu",
                "keys": [{"id": str(key.id), "secret": SECRET}],
                "models": [
                    {
                        "name": "gpt-4o",
                        "upstream": "gpt-4o",
                        "context_window": 128_000,
                        "max_output": 16_384,
                        "vision": False,
                    }
                ],
            }
        ],
        "silence_s": [60, 300],
    }
    connection_enable(actor=OPERATOR, connection=connection, enabled=False)
    assert not connections_served() and feed_read() == Feed([])
    connection_enable(actor=OPERATOR, connection=connection, enabled=True)
    connection_remove(actor=OPERATOR, connection=connection)
    assert feed_read() == Feed([])
    assert not ConnectionKey.objects.exclude(sealed=None).exists()


def test_a_server_of_ones_own_may_do_without_a_key() -> None:
    connection = make_connection(kind="other", url="http://10.0.0.7:8000")
    offers_set(actor=OPERATOR, connection=connection, drafts=[offer()])
    line = feed_line(feed_read())
    (told,) = read_configuration(line, credits=1).connections
    assert [key.secret for key in told.keys] == [""]
    assert told.options(told.models[0], told.keys[0], 1).url == "http://10.0.0.7:8000/v1"


def test_a_change_is_audited_by_what_differs() -> None:
    connection = make_connection()
    draft = ConnectionDraft(name="openai-eu", kind="openai", url="https://eu.api.openai.com/v1")
    connection_change(actor=OPERATOR, connection=connection, draft=draft)
    (told,) = rows("SELECT before, after FROM audit_entries WHERE action = 'connection.change'")
    assert told == (
        {"url": "https://api.openai.com/v1"},
        {"url": "https://eu.api.openai.com/v1"},
    )


def test_keys_are_not_taken_to_another_host() -> None:
    connection = make_connection()
    key_add(actor=OPERATOR, connection=connection, secret=SECRET)
    for url, keys in (("https://api.openai.com/v2", 1), ("https://elsewhere.example/v2", 0)):
        draft = ConnectionDraft(name="openai-eu", kind="openai", url=url)
        connection_change(actor=OPERATOR, connection=connection, draft=draft)
        assert ConnectionKey.objects.filter(retired_at=None).count() == keys


def test_a_test_says_how_the_provider_answered() -> None:
    with hosted_provider() as provider:
        connection = make_connection(kind="other", url=provider.url)
        assert connection_test(actor=OPERATOR, connection=connection).outcome == "refused"
        key_add(actor=OPERATOR, connection=connection, secret=SECRET)
        found = connection_test(actor=OPERATOR, connection=connection)
        assert (found.outcome, found.models) == (ProbeOutcome.OK, [UPSTREAM, "gpt-other"])
        assert Connection.objects.get().listed == [UPSTREAM, "gpt-other"]
        for status, outcome in ((404, "not_found"), (429, "limited"), (500, "failed")):
            provider.status = status
            assert connection_test(actor=OPERATOR, connection=connection).outcome == outcome
        provider.status, provider.body = 200, b"<html>"
        assert connection_test(actor=OPERATOR, connection=connection).outcome == "unreadable"
    assert connection_test(actor=OPERATOR, connection=connection).outcome == "unreachable"
    assert Connection.objects.get().listed == [UPSTREAM, "gpt-other"]


def test_each_kind_is_asked_in_its_own_way() -> None:
    with hosted_provider() as provider:
        root = provider.url.removesuffix("/v1")
        for kind, version, path, header in (
            ("anthropic", "", "/v1/models?limit=500", "x-api-key"),
            ("azure", "2024-10-21", "/openai/models?api-version=2024-10-21", "api-key"),
            ("openai", "", "/v1/models", "authorization"),
        ):
            connection = make_connection(name=kind, kind=kind, url="https://x", api_version=version)
            Connection.objects.filter(id=connection.id).update(url=root)
            connection.refresh_from_db()
            key_add(actor=OPERATOR, connection=connection, secret=SECRET)
            assert connection_test(actor=OPERATOR, connection=connection).outcome == "ok"
            assert provider.asked[-1][0] == path and SECRET in provider.asked[-1][1][header]


def test_the_shipped_prices_can_be_read_and_say_whence_and_when() -> None:
    for one in price_lists():
        assert one.source.startswith("https://") and len(one.as_of) == 10
        for model in one.models:
            rates = model.rates
            assert 0 < rates["cached_pico"] < rates["input_pico"] < rates["output_pico"]
            assert 0 < model.output_max < model.context_window
    assert price_list_of("azure") == price_list_of("openai") is not None
    assert price_list_of("other") is None
