"""`Idempotency-Key`: a change that is asked for twice happens once, and both hear the same answer.

The change and the answer that is kept commit together, so there is no moment in which one is known
without the other; what failed keeps nothing and may be tried again with the same key. An answer may
hold a secret that is shown once. So a row is found by an HMAC of caller, route and key, and its
body is sealed under another: both from a secret of the server and from the caller's own key, which
no table holds. Whoever steals the table reads nothing, and a replay still brings the secret back.
"""

import hmac
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.db import connection
from django.utils import timezone

from controlplane.core.models import KeptAnswer
from controlplane.core.seal import sealed, unsealed

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEY_CHARS_MAX = 255
KEPT_FOR = timedelta(hours=24)
ANSWER_BYTES_MAX = 1 << 18
FORGOTTEN_MAX = 5_000
RETRY_AFTER_S = 1
_KEY = re.compile(rf"[\x21-\x7e]{{1,{KEY_CHARS_MAX}}}")


class KeyRefused(Exception):
    """The request is not carried out because of its key; the database is as it was."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


class KeptReplay(Exception):
    """This was done before; raised with the answer it got then."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


@dataclass(frozen=True)
class KeyedAttempt:
    """A request that is the only one of its key just now."""

    id: uuid.UUID
    payload: bytes
    seal: bytes


def attempt_begin(
    *, caller: str, route: str, key: str, payload: bytes, require: Callable[[list[Any]], None]
) -> KeyedAttempt:
    """Claim the key until the open transaction ends; raises KeyRefused, or Replay.

    `payload` is a digest of what was asked. A key that is claimed already answers 409 at once.
    `require` looks up the rights by which a kept answer was given, and raises if one is gone.
    """
    if _KEY.fullmatch(key) is None:
        message = f"Must be 1 to {KEY_CHARS_MAX} visible ASCII characters without spaces."
        raise KeyRefused(400, message)
    root = hmac.digest(settings.SECRET_KEY.encode(), b"sluice.idempotency", sha256)
    scope = b"\0".join(part.encode() for part in (caller, route, key))
    place = hmac.digest(root, b"find\0" + scope, sha256)
    attempt = KeyedAttempt(
        uuid.UUID(bytes=place[:16]), payload, hmac.digest(root, b"seal\0" + scope, sha256)
    )
    if not _claim(int.from_bytes(place[16:24], signed=True), attempt.id):
        raise KeyRefused(409, "A request with this key is in progress.", "idempotency_in_progress")
    kept = KeptAnswer.objects.filter(id=attempt.id).first()
    if kept is not None and kept.created_at > timezone.now() - KEPT_FOR:
        require(kept.rights)
        _replay(attempt, kept)
    return attempt


def attempt_keep(
    attempt: KeyedAttempt, *, status: int, body: bytes | None, rights: list[list[str | None]]
) -> None:
    """Keep a success within its own transaction; a body beyond the bound, or None, is left out."""
    KeptAnswer.objects.filter(id=attempt.id).delete()
    if body is not None and len(body) > ANSWER_BYTES_MAX:
        body = None
    KeptAnswer.objects.create(
        id=attempt.id,
        payload=attempt.payload,
        status=status,
        rights=rights,
        body=None if body is None else sealed(attempt.seal, body, attempt.id.bytes),
    )


def answers_forget() -> int:
    """Drop what is over a day old, a bounded number; returns how many."""
    before = timezone.now() - KEPT_FOR
    with connection.cursor() as cursor:
        cursor.execute("SELECT kept_answers_forget(%s, %s)", [before, FORGOTTEN_MAX])
        return int(cursor.fetchone()[0])


def _claim(lock: int, attempt: uuid.UUID) -> bool:
    # Given back by PostgreSQL when the transaction ends, also where this process dies; until then
    # it sees the row of this attempt, and no other.
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_try_advisory_xact_lock(%s), set_config('app.attempt', %s, true)",
            [lock, str(attempt)],
        )
        return bool(cursor.fetchone()[0])


def _replay(attempt: KeyedAttempt, kept: KeptAnswer) -> None:
    if not hmac.compare_digest(bytes(kept.payload), attempt.payload):
        raise KeyRefused(
            422,
            "This key was used for a different request; use a new key for each request.",
            "idempotency_mismatch",
        )
    if kept.body is None:
        raise KeyRefused(
            409,
            "This request was completed earlier, and its response was too large to keep.",
            "idempotency_completed",
        )
    raise KeptReplay(kept.status, unsealed(attempt.seal, bytes(kept.body), attempt.id.bytes))
