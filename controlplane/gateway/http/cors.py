"""Which pages may call the API from a browser: the product's own, when they live elsewhere.

The Playground sends its short-lived token itself, so no cookie and no credential mode is allowed.
"""

from controlplane.gateway.call import Call

PREFLIGHT_S = b"600"
ALLOWED = b"authorization, content-type, idempotency-key, server-timing, traceparent, tracestate"
EXPOSED = (
    b"x-request-id, server-timing, openai-processing-ms, x-sluice-route, x-sluice-model,"
    b" x-sluice-pool, x-sluice-fallback, x-sluice-prompt, x-sluice-queue-ms,"
    b" x-sluice-idempotent-replay"
)


def cors_headers(call: Call, origins: frozenset[str]) -> list[tuple[bytes, bytes]]:
    """Headers that let a named origin read the answer; none for any other."""
    origin = call.header(b"origin") if origins else None
    if origin is None or origin not in origins:
        return []
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", EXPOSED),
        (b"vary", b"origin"),
    ]


def preflight_headers(call: Call, origins: frozenset[str]) -> list[tuple[bytes, bytes]]:
    """What a browser is told besides, when it asks before a request."""
    if not cors_headers(call, origins):
        return []
    return [
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-allow-headers", ALLOWED),
        (b"access-control-max-age", PREFLIGHT_S),
    ]
