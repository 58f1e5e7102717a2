"""The Playground's token: `play_sluice_<payload>.<signature>`, checked without any lookup.

It lives ten minutes; all of a user's can be ended sooner. It names what they may spend from.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

import msgspec

PLAY_PREFIX = "play_sluice_"
LIFETIME_S = 600
TOKEN_CHARS_MAX = 8_192


class PlayGrant(msgspec.Struct, frozen=True, kw_only=True):
    """What a token allows. Ids are 32 hex characters; `models` None allows every model.

    `budgets` are spent from besides the project's and the organization's own.
    """

    user: str
    organization: str
    project: str
    models: frozenset[str] | None
    budgets: tuple[str, ...]
    expires_at_s: float


class BadPlayToken(ValueError):
    """Not a token that was signed here."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PlayGrant)


def _signature(payload: str, secret: bytes) -> str:
    made = hmac.digest(secret, payload.encode("ascii"), sha256)
    return urlsafe_b64encode(made).decode("ascii").rstrip("=")


def sign_grant(grant: PlayGrant, secret: bytes) -> str:
    payload = urlsafe_b64encode(_encoder.encode(grant)).decode("ascii").rstrip("=")
    return f"{PLAY_PREFIX}{payload}.{_signature(payload, secret)}"


def open_grant(token: str, secret: bytes) -> PlayGrant:
    """What a token grants; raises BadPlayToken. The caller compares its time of expiry."""
    if len(token) > TOKEN_CHARS_MAX or not token.isascii() or not token.startswith(PLAY_PREFIX):
        raise BadPlayToken("shape")
    payload, _, signature = token[len(PLAY_PREFIX) :].partition(".")
    if not hmac.compare_digest(_signature(payload, secret), signature):
        raise BadPlayToken("signature")
    return _decoder.decode(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
