"""Claims on idempotency keys end after a day; gateways make them (`bridge/money/claims.py`)."""

from django.db import connection

KEPT_S = 86_400
ROWS_MAX = 10_000


def claims_forget() -> int:
    """Remove claims and answers older than a day, so many a run; returns how many."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT inference_claims_forget(%s, %s)", [KEPT_S, ROWS_MAX])
        return int(cursor.fetchone()[0])
