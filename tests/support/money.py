"""The cast of the money tests: Alice owns organization A and Bob is in her team; Charlie has C."""

from __future__ import annotations

import atexit
import select
import threading
import uuid
from collections.abc import Iterable
from typing import Any

import psycopg
from django.conf import settings
from psycopg.conninfo import make_conninfo

from controlplane.core.database_roles import conninfo_of
from controlplane.gateway.ports import Hold, IdempotencyTicket, Settlement
from controlplane.kernel.ids import new_request_id
from controlplane.kernel.price import Price, TokenCounts

ORG_A = uuid.UUID(int=0xA)
PROJECT_A = uuid.UUID(int=0xA1)
ALICE_KEY = uuid.UUID(int=0xA2)
BOB_KEY = uuid.UUID(int=0xA3)
ORG_C = uuid.UUID(int=0xC)
PROJECT_C = uuid.UUID(int=0xC1)
CHARLIE_KEY = uuid.UUID(int=0xC2)

Connection = psycopg.Connection[tuple[Any, ...]]
# To connect takes ten times as long as a query.
_kept: list[Connection] = []

# One nano-USD an input token, four an output token.
PRICE = Price(version=3, input_pico=1_000, cached_pico=100, output_pico=4_000)


def dsn(alias: str = "gateway") -> str:
    """How a role reaches the test's database."""
    return conninfo_of(settings.DATABASES[alias])


def superuser_dsn() -> str:
    """The one who may do anything."""
    entry = settings.DATABASES["owner"]
    return make_conninfo(
        host=entry["HOST"],
        dbname=entry["NAME"],
        user="postgres",
        password=settings.SUPERUSER_PASSWORD,
    )


def rows(query: str, *values: object) -> list[Any]:
    """All rows, as the superuser sees them; each call is a transaction of its own."""
    if threading.current_thread() is threading.main_thread():
        return _fetched(_kept_connection(), query, values)
    with _connect() as connection:
        return _fetched(connection, query, values)


def _fetched(connection: Connection, query: str, values: tuple[object, ...]) -> list[Any]:
    cursor = connection.execute(query.encode(), values)
    return cursor.fetchall() if cursor.description else []


def _connect() -> Connection:
    # No statement is prepared: tests change tables between two calls.
    return psycopg.connect(superuser_dsn(), autocommit=True, prepare_threshold=None)


def _kept_connection() -> Connection:
    """The main thread's; a new one where the server has closed it, or said anything, since."""
    if _kept and (_kept[-1].closed or select.select(_kept, (), (), 0)[0]):
        _kept.pop().close()
    if not _kept:
        _kept.append(_connect())
    return _kept[-1]


@atexit.register
def _close_kept() -> None:
    while _kept:
        _kept.pop().close()


def add_budget(budget: uuid.UUID, lim: int, *, scope: str, organization: uuid.UUID = ORG_A) -> None:
    """A limit on something; the counters start at nothing."""
    rows(
        "INSERT INTO budgets (id, organization, scope, lim) VALUES (%s, %s, %s, %s)",
        budget,
        organization,
        scope,
        lim,
    )


def add_part(budget: uuid.UUID, lim: int, *, scope: str, model: str = "") -> None:
    """A budget of a model of project A, or what each of its end users gets, in all."""
    part = "INSERT INTO budget_parts (budget, organization, project, model) VALUES (%s, %s, %s, %s)"
    rows(part, budget, ORG_A, PROJECT_A, model or None)
    add_budget(budget, lim, scope=scope)
    terms = "INSERT INTO budget_terms (budget, organization, allowance) VALUES (%s, %s, %s)"
    rows(terms, budget, ORG_A, lim)


def budget_row(budget: uuid.UUID) -> tuple[int, int, int]:
    """(posted, held, over) of a budget."""
    found: tuple[int, int, int] = rows(
        "SELECT posted, held, over FROM budgets WHERE id = %s", budget
    )[0]
    return found


def lines(request: bytes) -> list[tuple[int, str, int]]:
    """(slot, kind, amount) of a request's transfers."""
    return rows(
        "SELECT slot, kind, amount FROM transfers WHERE request = %s ORDER BY slot",
        uuid.UUID(bytes=request),
    )


def make_hold(
    amount: int,
    *budgets: uuid.UUID,
    organization: uuid.UUID = ORG_A,
    expires_s: int = 60,
    request: bytes | None = None,
) -> Hold:
    """Alice's hold, or Charlie's."""
    alice = organization == ORG_A
    return Hold(
        request=request or new_request_id(),
        organization=organization.hex,
        project=(PROJECT_A if alice else PROJECT_C).hex,
        key=(ALICE_KEY if alice else CHARLIE_KEY).hex,
        budgets=tuple(budget.hex for budget in budgets),
        amount_nano=amount,
        model="sluice-5m",
        price=PRICE,
        expires_s=expires_s,
    )


def settlement_of(hold: Hold, amount: int, counts: TokenCounts | None = None) -> Settlement:
    """Resolve a hold; without counts the amount is explained by output and input tokens."""
    return Settlement(
        request=hold.request,
        organization=hold.organization,
        project=hold.project,
        key=hold.key,
        budgets=hold.budgets,
        held_nano=hold.amount_nano,
        amount_nano=amount,
        counts=counts or TokenCounts(uncached=amount % 4, cached=0, output=amount // 4),
        model=hold.model,
        price=hold.price,
        source="gateway",
    )


def ticket(**changes: object) -> IdempotencyTicket:
    """Alice's claim on a key; always the same one, of another request."""
    fields: dict[str, object] = {
        "id": b"i" * 32,
        "organization": ORG_A.hex,
        "request": new_request_id(),
        "body_digest": b"d" * 32,
        "secret": b"sk_alice",
    }
    return IdempotencyTicket(**{**fields, **changes})  # type: ignore[arg-type]


def scope_of(ids: Iterable[uuid.UUID]) -> str:
    """The value of `app.orgs`."""
    return "{" + ",".join(map(str, ids)) + "}"
