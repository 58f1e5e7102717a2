"""One database for many tests: emptied in 10 ms, where a copy of the template takes 100.

What a test wrote is deleted, and what the template holds is put back. Whatever changed a table, a
function, a right or a partition shows in the catalog; such a database is not used again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.rows import scalar_row, tuple_row

# Deleted rows stay in their files for a while.
USES_MAX = 100
GONE_S_MAX = 5.0
POLL_S = 0.002

_CATALOG = """
SELECT sum(hashtextextended(told, 0))::text FROM (
    SELECT concat('class', oid, xmin) FROM pg_class
    UNION ALL SELECT concat('attribute', attrelid, attnum, xmin) FROM pg_attribute
    UNION ALL SELECT concat('function', oid, xmin) FROM pg_proc
    UNION ALL SELECT concat('trigger', oid, xmin) FROM pg_trigger
    UNION ALL SELECT concat('policy', oid, xmin) FROM pg_policy
    UNION ALL SELECT concat('constraint', oid, xmin) FROM pg_constraint
    UNION ALL SELECT concat('default', oid, xmin) FROM pg_attrdef
    UNION ALL SELECT concat('schema', oid, xmin) FROM pg_namespace
) AS all_of (told)
"""
_TABLES = """
SELECT oid::regclass::text FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY oid
"""
_COUNTED = """
SELECT format('%I.%I', schemaname, sequencename), last_value FROM pg_sequences
WHERE last_value IS NOT NULL
"""
_OTHERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@dataclass(frozen=True)
class Seed:
    """What the template holds: its catalog, its tables, and the rows of those that have any."""

    catalog: str
    tables: tuple[str, ...]
    rows: dict[str, list[str]]
    copies: dict[str, bytes]
    counted: dict[str, int]


class KeptDatabase:
    """The database between tests, through one connection of the superuser that stays open."""

    def __init__(self, dsn: str) -> None:
        self._door = psycopg.connect(dsn, autocommit=True, row_factory=scalar_row)
        self._door.execute("SET session_replication_role = replica")
        self._seed = self._read()
        self._uses = 1

    def close(self) -> None:
        """Leave it."""
        self._door.close()

    def emptied(self) -> bool:
        """Bring it back to what the template is; False where a new one is needed."""
        self._uses += 1
        try:
            return self._uses <= USES_MAX and self.cut() and self._restored()
        except psycopg.OperationalError:
            # PostgreSQL was ended by the test, and may be there again.
            return False

    def cut(self) -> bool:
        """End all other connections; False where one does not end."""
        ends_s = time.monotonic() + GONE_S_MAX
        while self._door.execute(_OTHERS).fetchone():
            if time.monotonic() > ends_s:
                return False
            time.sleep(POLL_S)
        return True

    def _restored(self) -> bool:
        if self._door.execute(_CATALOG).fetchone() != self._seed.catalog:
            return False
        with self._door.transaction():
            for table in self._filled(self._seed.tables):
                if table not in self._seed.rows:
                    self._door.execute(sql.SQL("DELETE FROM ONLY {}").format(_named(table)))
            for table, rows in self._seed.rows.items():
                if self._rows(table) != rows:
                    self._put_back(table)
        for sequence, value in self._counted().items():
            kept = self._seed.counted.get(sequence)
            if value != kept:
                again = [sequence, kept or 1, kept is not None]
                self._door.execute("SELECT setval(%s::regclass, %s, %s)", again)
        return True

    def _read(self) -> Seed:
        tables = tuple(self._door.execute(_TABLES).fetchall())
        filled = self._filled(tables)
        return Seed(
            catalog=str(self._door.execute(_CATALOG).fetchone()),
            tables=tables,
            rows={table: self._rows(table) for table in filled},
            copies={table: self._copied(table) for table in filled},
            counted=self._counted(),
        )

    def _filled(self, tables: Sequence[str]) -> list[str]:
        asked = sql.SQL(", ").join(
            sql.SQL("CASE WHEN EXISTS (SELECT FROM ONLY {}) THEN {} END").format(
                _named(table), sql.Literal(table)
            )
            for table in tables
        )
        statement = sql.SQL("SELECT array_remove(ARRAY[{}], NULL)").format(asked)
        found: list[str] = self._door.execute(statement, prepare=True).fetchone() or []
        return found

    def _counted(self) -> dict[str, int]:
        with self._door.cursor(row_factory=tuple_row) as cursor:
            return dict(cursor.execute(_COUNTED).fetchall())

    def _rows(self, table: str) -> list[str]:
        statement = "SELECT t::text FROM ONLY {} AS t ORDER BY 1"
        return self._door.execute(sql.SQL(statement).format(_named(table))).fetchall()

    def _copied(self, table: str) -> bytes:
        statement = sql.SQL("COPY {} TO STDOUT").format(_named(table))
        with self._door.cursor().copy(statement) as copy:
            return b"".join(bytes(part) for part in copy)

    def _put_back(self, table: str) -> None:
        self._door.execute(sql.SQL("DELETE FROM ONLY {}").format(_named(table)))
        statement = sql.SQL("COPY {} FROM STDIN").format(_named(table))
        with self._door.cursor().copy(statement) as copy:
            copy.write(self._seed.copies[table])


def _named(table: str) -> sql.SQL:
    # As `regclass` writes it: quoted where it has to be.
    return sql.SQL(table)
