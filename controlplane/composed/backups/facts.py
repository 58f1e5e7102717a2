"""What a database holds, counted and summed in one snapshot: a backup's and a restored one's."""

from collections.abc import Iterator
from typing import Any

from psycopg import Connection, sql

from controlplane.composed.backups.archive import AccountSums, LedgerFacts

TABLES = """
    SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
    ORDER BY 1
"""
# Holds, releases and expiries post nothing.
ACCOUNTS = """
    WITH posted AS (
        SELECT debit, credit, amount FROM transfers WHERE kind IN ('settle', 'overage', 'late')
        UNION ALL SELECT debit, credit, amount FROM journal_entries
    )
    SELECT account, sum(debited)::text, sum(credited)::text FROM (
        SELECT debit AS account, amount AS debited, 0 AS credited FROM posted
        UNION ALL SELECT credit, 0, amount FROM posted
    ) AS sides GROUP BY account ORDER BY account
"""
HOLDS = "SELECT count(*), coalesce(sum(amount), 0)::text FROM open_holds"
HEAD = """
    SELECT number || ':' || encode(digest, 'hex') FROM audit_links ORDER BY number DESC LIMIT 1
"""


def facts_of(connection: Connection[Any]) -> LedgerFacts:
    """Read in the connection's transaction; it must see every row."""
    names = [name for (name,) in connection.execute(TABLES)]
    held = connection.execute(HOLDS).fetchone()
    head = connection.execute(HEAD).fetchone()
    assert held is not None
    return LedgerFacts(
        tables={name: _count(connection, name) for name in names},
        accounts={name: AccountSums(*sums) for name, *sums in connection.execute(ACCOUNTS)},
        open_holds=held[0],
        held_nano=held[1],
        audit_head=head[0] if head else None,
    )


def differences(taken: LedgerFacts, found: LedgerFacts) -> Iterator[str]:
    """What is not in the database as it was in the backup, a line each."""
    for what, before, after in (
        ("table", taken.tables, found.tables),
        ("account", taken.accounts, found.accounts),
    ):
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                yield f"{what} {name}: {before.get(name)} in the backup, {after.get(name)} here"
    for name in ("open_holds", "held_nano", "audit_head"):
        if getattr(taken, name) != getattr(found, name):
            yield f"{name}: {getattr(taken, name)} in the backup, {getattr(found, name)} here"


def _count(connection: Connection[Any], table: str) -> int:
    row = connection.execute(
        sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))
    ).fetchone()
    return int(row[0]) if row else 0
