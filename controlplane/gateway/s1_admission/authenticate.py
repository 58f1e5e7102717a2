"""Who is calling: the key from `Authorization: Bearer` or `x-api-key`, checked in memory.

Its scopes are held against the call here, too, but for its models: those a body names.
"""

from controlplane.gateway.call import Call
from controlplane.gateway.places import Places
from controlplane.gateway.ports import Keys
from controlplane.gateway.refusal import bad_key, endpoint_not_allowed, ip_not_allowed
from controlplane.gateway.snapshot import KeyRecord
from controlplane.kernel.keys.scopes import caller_within
from controlplane.kernel.spans import INDEX

AUTHENTICATE = INDEX["s1_admission.authenticate"]
_MISSING = (
    "You didn't provide an API key. Send it in the Authorization header:"
    " 'Authorization: Bearer YOUR_KEY'."
)


def authenticate(call: Call, keys: Keys) -> KeyRecord:
    """Return the caller's key; raises `Refusal` (401)."""
    began = call.spans.clock()
    try:
        return keys.check(presented(call))
    finally:
        call.spans.add(AUTHENTICATE, began)


def check_scopes(call: Call, key: KeyRecord, endpoint: str, places: Places) -> None:
    """Return if the key may be used for this endpoint from there; raises `Refusal` (403)."""
    if key.endpoints is not None and endpoint not in key.endpoints:
        raise endpoint_not_allowed(endpoint, key.endpoints)
    if key.networks:
        caller = places.address_of(call)
        if not caller_within(key.networks, caller):
            raise ip_not_allowed(caller)


def presented(call: Call) -> str:
    """The credential as it was sent; raises `Refusal` (401)."""
    header = call.header(b"authorization")
    if header is not None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise bad_key("The Authorization header must read 'Bearer YOUR_KEY'.")
        return token.strip()
    token = call.header(b"x-api-key") or ""
    if not token.strip():
        raise bad_key(_MISSING)
    return token.strip()
