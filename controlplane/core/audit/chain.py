"""The chain over audit rows: a job links each to the one before it, the verifier follows it again.

The digest of each link is computed here apart from the SQL that makes it, so that one mistake
cannot hide in both. Whoever can rewrite the whole database can rewrite the chain too: note its head
elsewhere, such as the log that the job writes, and hold the chain against that.
"""

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple

from django.db import connection
from django.db.backends.utils import CursorWrapper

LINKS_PER_CALL_MAX = 1_000
CALLS_PER_RUN_MAX = 20
LINKS_READ = 1_000
# A row without a link that is older than the last link by more was put in behind the job's back.
LINK_GRACE_S = 600
START = sha256(b"").digest()

_LINKS = """
    SELECT l.number, l.entry, l.digest, e.id IS NOT NULL, e.id::text,
           (extract(epoch FROM e.created_at) * 1000000)::bigint::text, e.actor_id::text,
           e.actor_label, e.organization_id::text, e.action, e.subject_type, e.subject_id::text,
           e.detail::text, e.before::text, e.after::text, e.channel, e.address, e.agent,
           e.credential
    FROM audit_links l LEFT JOIN audit_entries e ON e.id = l.entry
    WHERE l.number > %s ORDER BY l.number LIMIT %s
"""
_UNLINKED = """
    SELECT e.id FROM audit_entries e
    WHERE e.created_at < (SELECT max(chained_at) FROM audit_links) - %s * interval '1 second'
      AND NOT EXISTS (SELECT 1 FROM audit_links l WHERE l.entry = e.id) ORDER BY e.id LIMIT 100
"""
_WAITING = """
    SELECT count(*) FROM audit_entries e
    WHERE NOT EXISTS (SELECT 1 FROM audit_links l WHERE l.entry = e.id)
"""
_UNGUARDED = """
    SELECT c.relname || ' lacks an enabled ' || w.name FROM pg_class c
    CROSS JOIN (VALUES ('audit_append_only'), ('audit_no_truncate')) AS w(name)
    WHERE c.relname IN ('audit_entries', 'audit_links')
      AND c.relnamespace = 'public'::regnamespace
      AND NOT EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = w.name
                                                   AND t.tgenabled <> 'D')
    UNION ALL
    SELECT r.rolname || ' may ' || p.name || ' ' || t.name
    FROM pg_roles r, (VALUES ('UPDATE'), ('DELETE'), ('TRUNCATE')) AS p(name),
         (VALUES ('audit_entries'), ('audit_links')) AS t(name)
    WHERE r.rolname IN ('sluice_app', 'sluice_gateway', 'sluice_ledger')
      AND has_table_privilege(r.rolname, t.name, p.name)
"""


class ChainHead(NamedTuple):
    """The last link: everything before it follows from its digest (hexadecimal)."""

    number: int
    digest: str

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"


def audit_chain() -> int:
    """Link the rows that have no link yet, a bounded number at a time; returns how many."""
    linked = 0
    for _ in range(CALLS_PER_RUN_MAX):
        with connection.cursor() as cursor:
            cursor.execute("SELECT audit_chain(%s)", [LINKS_PER_CALL_MAX])
            found = int(cursor.fetchone()[0])
        linked += found
        if found < LINKS_PER_CALL_MAX:
            break
    return linked


def chain_head() -> ChainHead | None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT number, encode(digest, 'hex') FROM audit_links ORDER BY number DESC LIMIT 1"
        )
        row = cursor.fetchone()
    return ChainHead(*row) if row else None


class ChainVerifier:
    """One run over the whole chain; `head` and `checked` say how far it came.

    `waiting` rows are younger than the last link: the job has yet to come to them.
    """

    def __init__(self, cursor: CursorWrapper) -> None:
        self._cursor = cursor
        self.checked = self.waiting = 0
        self.head = ChainHead(0, START.hex())

    def breaches(self, expected: ChainHead | None = None) -> Iterator[str]:
        """Every row that is not as it was linked, by its id; needs to see all rows.

        `expected` is a head that was recorded earlier: the chain must still contain it.
        """
        met = expected is None
        for number, entry, digest, present, line in self._links():
            if number != self.head.number + 1:
                yield f"links {self.head.number + 1} to {number - 1} are gone"
            linked = sha256(bytes.fromhex(self.head.digest) + line.encode()).hexdigest()
            if not present:
                yield f"audit row {entry} (link {number}) is gone"
            elif linked != digest:
                yield f"audit row {entry} (link {number}) is not what was linked"
            # What follows is held against the link as it stands, so that one change is one breach.
            self.head = ChainHead(number, digest)
            self.checked += 1
            met = met or self.head == expected
        if not met:
            yield f"the chain does not contain the head {expected} that was noted"
        self._cursor.execute(_WAITING)
        self.waiting = self._cursor.fetchone()[0]
        self._cursor.execute(_UNLINKED, [LINK_GRACE_S])
        yield from (f"audit row {entry} has no link" for (entry,) in self._cursor.fetchall())
        self._cursor.execute(_UNGUARDED)
        yield from (text for (text,) in self._cursor.fetchall())

    def _links(self) -> Iterator[tuple[int, Any, str, bool, str]]:
        last = 0
        while True:
            self._cursor.execute(_LINKS, [last, LINKS_READ])
            rows = self._cursor.fetchall()
            for number, entry, digest, present, *columns in rows:
                last = number
                yield number, entry, bytes(digest).hex(), present, _line(columns)
            if len(rows) < LINKS_READ:
                return


def head_from(text: str) -> ChainHead:
    """A head as it is printed; raises ValueError."""
    number, separator, digest = text.partition(":")
    if not separator or len(bytes.fromhex(digest)) != len(START):
        raise ValueError(f"{text!r} is no head: it has the form NUMBER:DIGEST")
    return ChainHead(int(number), digest.lower())


def _line(columns: list[str | None]) -> str:
    """The columns as a JSON array of texts, byte for byte as PostgreSQL prints it."""
    return json.dumps(columns, ensure_ascii=False)
