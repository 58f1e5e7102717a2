"""Audit rows: only ever added, only within a transaction, and never with a secret in them."""

import psycopg
import pytest
from django.db import ProgrammingError, connection, transaction

from controlplane.core.audit.entries import OPERATOR, OutsideTransaction, audit_record
from controlplane.core.models import AuditEntry
from controlplane.core.permissions import organization_scope
from controlplane.fleet.services import (
    TokenDraft,
    node_credential_create,
    token_create,
    token_redeem,
)
from controlplane.tenants.audit.selectors import audit_search
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.services import playground_token_create
from controlplane.tenants.sign_in.accounts import setup_link_create
from tests.support.money import rows
from tests.support.people import make_cast

pytestmark = pytest.mark.usefixtures("database")


def test_needs_an_open_transaction() -> None:
    cast = make_cast()
    with pytest.raises(OutsideTransaction):
        audit_record(OPERATOR, "x", subject=cast.acme, organization_id=cast.acme.id)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_entries SET action = 'x'",
        "DELETE FROM audit_entries",
        "TRUNCATE audit_entries",
    ],
)
def test_rows_cannot_be_changed_by_anyone(statement: str) -> None:
    cast = make_cast()
    with pytest.raises(psycopg.errors.RestrictViolation):
        rows(statement)
    with (
        pytest.raises(ProgrammingError, match="permission denied"),
        organization_scope([cast.acme.id]),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)


def test_the_row_vanishes_with_its_change() -> None:
    cast = make_cast()
    before = len(audit_search(actor=cast.alice, organization_id=cast.acme.id).rows)
    with pytest.raises(RuntimeError), transaction.atomic():
        apikey_create(actor=cast.alice, project=cast.project, label="lost")
        raise RuntimeError
    assert len(audit_search(actor=cast.alice, organization_id=cast.acme.id).rows) == before


def test_each_organization_sees_its_own() -> None:
    cast = make_cast()
    mine = audit_search(actor=cast.alice, organization_id=cast.acme.id).rows
    assert {row.action for row in mine} == {
        "organization.create",
        "membership.set",
        "project.create",
    }
    assert {row.organization_id for row in mine} == {cast.acme.id}
    assert not AuditEntry.objects.exists()


def test_secrets_are_nowhere_in_the_database(caplog: pytest.LogCaptureFixture) -> None:
    cast = make_cast()
    created = apikey_create(actor=cast.alice, project=cast.project, label="deploy")
    node = node_credential_create(actor=OPERATOR, name="n1", pool="default")
    enrolment = token_create(actor=OPERATOR, draft=TokenDraft(pool="default"))
    enrolled = token_redeem(secret=enrolment.secret, name="n2", pool="default")
    link = setup_link_create(actor=OPERATOR, user=cast.bob)
    play = playground_token_create(actor=cast.bob, project=cast.project)
    made = (created, node, enrolment, enrolled)
    texts = [*map(repr, made), str(created.key), caplog.text, _dump()]
    secrets = (created.secret, node.secret, enrolment.secret, enrolled.credential, link, play)
    for secret in secrets:
        for text in texts:
            assert secret not in text
            # Nor the secret part alone.
            assert secret[-40:] not in text


def _dump() -> str:
    """Every row of every table."""
    tables = rows(
        "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p')"
        " AND relnamespace = 'public'::regnamespace"
    )
    return "".join(str(rows(f"SELECT t::text FROM {name} t")) for (name,) in tables)
