"""What stands between us and PostgreSQL: a pooler has to leave each connection its session."""

from secrets import token_hex

from django.conf import settings
from django.db import connections

POOLED = (
    "a pooler gives a connection's session to others after each transaction, and with it the "
    "gateway's prepared statements and settings"
)
POOLED_FIX = "Set pool_mode = session in PgBouncer for Sluice's roles, or name the server itself."
PLACES = {"default": "DATABASE_URL", "gateway": "DATABASE_GATEWAY_URL"}


def pooled_by_transaction() -> list[str]:
    """The variables whose address leads to such a pooler; raises `django.db.Error`."""
    known = settings.DATABASES
    return [name for alias, name in PLACES.items() if known.get(alias) and _shares(alias)]


def _shares(alias: str) -> bool:
    mark = token_hex()
    first, second = connections[alias].copy(), connections[alias].copy()
    try:
        with first.cursor() as one, second.cursor() as other:
            one.execute("SELECT set_config('sluice.seen', %s, false)", [mark])
            # The first is idle now: only a pooler of transactions lends what it had.
            other.execute("SELECT current_setting('sluice.seen', true)")
            return bool(other.fetchone() == (mark,))
    finally:
        first.close()
        second.close()
