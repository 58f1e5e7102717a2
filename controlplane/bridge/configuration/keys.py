"""The Keys port: credentials checked against the snapshot, without any call to a store."""

import hmac
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from controlplane.billing.ledger.accounts import wallet_id
from controlplane.gateway.refusal import Refusal, bad_key, unavailable
from controlplane.gateway.snapshot import KeyRecord, Limits, Snapshot
from controlplane.kernel.keys import format
from controlplane.kernel.keys.playtoken import LIFETIME_S, PLAY_PREFIX, BadPlayToken, open_grant

# A snapshot that no one could confirm for this long may hold revoked keys: refuse with 503.
SNAPSHOT_AGE_S_MAX = 30.0
RETRY_S = 1
PLAY_LIMITS = Limits(requests_per_min=60)

# Clients look for the first words of OpenAI's message to tell a wrong key from other errors.
UNKNOWN = "Incorrect API key provided."
MALFORMED = f"{UNKNOWN} Its shape or checksum is wrong: check for typos."
ADMIN = f"{UNKNOWN} This is an admin key, which cannot call models. Send an inference key."
REVOKED = f"{UNKNOWN} This key has been revoked."
EXPIRED = f"{UNKNOWN} This key has expired."
PLAY_ENDED = "This Playground session has ended. Reload the page for a new one."


class Configuration(Protocol):
    """Where the snapshot comes from."""

    @property
    def current(self) -> Snapshot: ...
    @property
    def age_s(self) -> float: ...
    @property
    def now_s(self) -> float: ...


class SnapshotKeys:
    """Checks API keys and Playground tokens. Every refusal is a 401 `invalid_api_key`."""

    def __init__(
        self,
        source: Configuration,
        *,
        pepper: bytes,
        peppers_before: Sequence[bytes] = (),
        play_secret: bytes,
    ) -> None:
        self._source = source
        self._before = tuple(peppers_before)
        self._digest = format.CredentialDigest(pepper)
        self._play_secret = play_secret

    def snapshot(self) -> Snapshot:
        return self._source.current

    def check(self, presented: str) -> KeyRecord:
        """The key's record; raises `Refusal` 401, or 503 when the configuration is too old."""
        if presented.startswith(PLAY_PREFIX):
            return self._check_play(presented)
        # The digest covers shape and checksum, so only what does not match is looked at for them.
        record = self._source.current.keys.get(format.claimed_id(presented))
        made = self._digest(presented) if presented.isascii() else b""
        known = record is not None and hmac.compare_digest(made, record.digest)
        if not known and made and record is not None:
            known = format.is_digest(record.digest, presented, self._before)
        if not known and format.parse_credential(presented) is None:
            raise bad_key(ADMIN if presented.startswith(format.ADMIN_PREFIX) else MALFORMED)
        self._require_fresh()
        # What became of a key is told only to who holds its secret.
        if record is None or not known:
            raise bad_key(UNKNOWN)
        return self._alive(record)

    def recheck(self, key_id: str) -> KeyRecord | None:
        self._require_fresh()
        record = self._source.current.keys.get(key_id)
        return None if record is None else self._alive(record)

    def _alive(self, record: KeyRecord) -> KeyRecord:
        if record.revoked:
            raise bad_key(REVOKED)
        if record.expires_at_s is not None and record.expires_at_s <= self._source.now_s:
            raise bad_key(EXPIRED)
        return record

    def _require_fresh(self) -> None:
        if self._source.age_s > SNAPSHOT_AGE_S_MAX:
            raise _away()

    def _check_play(self, presented: str) -> KeyRecord:
        try:
            grant = open_grant(presented, self._play_secret)
        except BadPlayToken:
            raise bad_key(MALFORMED) from None
        if grant.expires_at_s <= self._source.now_s:
            raise bad_key(PLAY_ENDED)
        self._require_fresh()
        snapshot = self._source.current
        project = snapshot.projects.get(grant.project)
        if project is None or project.organization != grant.organization:
            raise bad_key(UNKNOWN)
        made_s = grant.expires_at_s - LIFETIME_S
        if made_s <= snapshot.tokens_from.get(grant.user, 0.0):
            raise bad_key(PLAY_ENDED)
        wallet = wallet_id(UUID(hex=grant.organization)).hex
        spends_from = dict.fromkeys((*grant.budgets, grant.project, grant.organization, wallet))
        return KeyRecord(
            key_id="playground",
            id=grant.user,
            digest=b"",
            organization=grant.organization,
            project=grant.project,
            label="Playground",
            expires_at_s=grant.expires_at_s,
            revoked=False,
            models=grant.models,
            budgets=tuple(budget for budget in spends_from if budget in snapshot.budgets),
            limits_id=grant.user,
            limits=PLAY_LIMITS,
        )


def _away() -> Refusal:
    return unavailable(
        "configuration_unavailable",
        "API keys cannot be checked right now. Try again shortly.",
        retry_after_s=RETRY_S,
    )
