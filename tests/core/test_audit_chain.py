"""The chain over audit rows: whatever is changed, removed or put in is named."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections, transaction

from controlplane.core.audit.chain import (
    ChainHead,
    ChainVerifier,
    audit_chain,
    chain_head,
    head_from,
)
from controlplane.core.audit.entries import OPERATOR, audit_record
from controlplane.core.tasks import audit_chain as audit_chain_task
from controlplane.tenants.models import Organization
from tests.support.money import rows, superuser_dsn
from tests.support.people import Cast, make_cast

WRITERS = 8


@pytest.fixture
def cast(database: str) -> Cast:
    """Who wrote some rows by being made."""
    return make_cast()


def breaches(expected: ChainHead | None = None) -> list[str]:
    """What the verifier finds."""
    with connections["owner"].cursor() as cursor:
        return list(ChainVerifier(cursor).breaches(expected))


def record(organization: Organization, text: str) -> uuid.UUID:
    """One more row."""
    with transaction.atomic():
        return audit_record(
            OPERATOR,
            "test.note",
            subject=organization,
            organization_id=None,
            detail={"text": text, "list": [text, ""], "number": -7, "none": None},
            changed=({"name": text, "same": 1}, {"name": "after", "same": 1}),
        ).id


def tamper(statement: str, *values: object) -> None:
    """What only the database's superuser can do: nothing of ours stands in the way."""
    with psycopg.connect(superuser_dsn(), autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(statement.encode(), values)


def test_each_row_gets_one_link(cast: Cast) -> None:
    written = rows("SELECT count(*) FROM audit_entries")[0][0]
    assert chain_head() is None
    assert audit_chain_task() == written
    assert audit_chain_task() == 0
    head = chain_head()
    assert head is not None and head.number == written
    assert breaches(head) == []
    assert head_from(str(head)) == head


@pytest.mark.parametrize(
    "text", ["", "Zoë “quoted” \\ / \t\n\x01\x7f 日本 \U0001f600 \u2028", '{"a": [1, 2.50]}', "|"]
)
def test_any_text_is_linked_alike_by_sql_and_python(cast: Cast, text: str) -> None:
    record(cast.acme, text)
    assert audit_chain() > 0
    assert breaches() == []


@pytest.mark.parametrize(
    "change",
    [
        "action = 'nothing.happened'",
        "actor_label = 'somebody else'",
        "actor_id = gen_random_uuid()",
        "detail = '{}'",
        "before = NULL",
        'after = \'{"name": "other"}\'',
        "created_at = created_at + interval '1 microsecond'",
        "address = '10.0.0.1'",
        "credential = 'session x'",
        "organization_id = gen_random_uuid()",
    ],
)
def test_a_changed_row_is_named(cast: Cast, change: str) -> None:
    entry = record(cast.acme, "as it was")
    record(cast.acme, "after it")
    audit_chain()
    tamper(f"UPDATE audit_entries SET {change} WHERE id = %s", entry)
    (found,) = breaches()
    assert str(entry) in found


def test_a_removed_row_is_named(cast: Cast) -> None:
    entry = record(cast.acme, "gone")
    record(cast.acme, "after it")
    audit_chain()
    tamper("DELETE FROM audit_entries WHERE id = %s", entry)
    (found,) = breaches()
    assert f"{entry}" in found and "gone" in found


def test_a_row_that_was_put_in_later_is_named(cast: Cast) -> None:
    record(cast.acme, "before it")
    audit_chain()
    entry = record(cast.acme, "moved into the past")
    past = "UPDATE audit_entries SET created_at = created_at - interval '1 day' WHERE id = %s"
    tamper(past, entry)
    assert audit_chain() == 0
    assert breaches() == [f"audit row {entry} has no link"]


def test_rows_that_the_job_has_yet_to_reach_only_wait(cast: Cast) -> None:
    record(cast.acme, "before it")
    audit_chain()
    record(cast.acme, "after it")
    with connections["owner"].cursor() as cursor:
        verifier = ChainVerifier(cursor)
        assert list(verifier.breaches()) == []
    assert verifier.waiting == 1


def test_a_removed_link_and_a_chain_made_anew_are_told(cast: Cast) -> None:
    record(cast.acme, "one")
    audit_chain()
    head = chain_head()
    assert head is not None
    tamper("DELETE FROM audit_links WHERE number = %s", head.number - 1)
    assert any("are gone" in found for found in breaches())
    tamper("DELETE FROM audit_links")
    tamper("UPDATE audit_entries SET actor_label = 'nobody'")
    audit_chain()
    # Consistent in itself, but not the chain whose head was noted.
    assert breaches() == []
    assert breaches(head) == [f"the chain does not contain the head {head} that was noted"]


def test_a_switched_off_guard_is_told(cast: Cast) -> None:
    rows("ALTER TABLE audit_entries DISABLE TRIGGER audit_append_only")
    rows("GRANT DELETE ON audit_links TO sluice_app")
    assert breaches() == [
        "audit_entries lacks an enabled audit_append_only",
        "sluice_app may DELETE audit_links",
    ]


def test_links_cannot_be_changed(cast: Cast) -> None:
    audit_chain()
    for statement in ("UPDATE audit_links SET number = 0", "DELETE FROM audit_links"):
        with pytest.raises(psycopg.errors.RestrictViolation):
            rows(statement)


def test_a_slow_writer_is_linked_later_and_holds_nobody_up(cast: Cast) -> None:
    audit_chain()
    with psycopg.connect(superuser_dsn()) as slow:
        slow.execute(
            "INSERT INTO audit_entries (id, created_at, actor_label, action, subject_type,"
            " subject_id, detail, channel, address, agent, credential) VALUES (gen_random_uuid(),"
            " now(), 'slow', 'test.slow', 'x', gen_random_uuid(), '{}', '', '', '', '')"
        )
        record(cast.acme, "younger, and first")
        assert audit_chain() == 1
        slow.commit()
    assert audit_chain() == 1
    assert breaches() == []


def test_linkers_at_once_make_one_chain(cast: Cast) -> None:
    written = rows("SELECT count(*) FROM audit_entries")[0][0]

    def work(_: int) -> int:
        try:
            return audit_chain()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(WRITERS) as threads:
        assert sum(threads.map(work, range(WRITERS))) == written
    assert breaches() == []


def test_the_command_names_the_row_and_fails_when_strict(
    cast: Cast, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = record(cast.acme, "as it was")
    audit_chain()
    call_command("verify_audit", "--strict")
    assert "audit ok" in capsys.readouterr().out
    tamper("UPDATE audit_entries SET action = 'x' WHERE id = %s", entry)
    with pytest.raises(SystemExit):
        call_command("verify_audit", "--strict", f"--contains={chain_head()}")
    assert str(entry) in capsys.readouterr().out
