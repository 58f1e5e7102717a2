"""Which pages may call the API from a browser: the product's own, when they live elsewhere.

The Playground sends its short-lived token itself, so no cookie and no credential mode is allowed.
"""

from controlplane.gateway.call import Call

PREFLIGHT_S = 600
ALLOWED = "authorization, content-type, idempotency-key, server-timing, traceparent, tracestate"
EXPOSED = (
    "x-request-id, server-timing, openai-processing-ms, x-sluice-route, x-sluice-model,"
    " x-sluice-pool, x-sluice-fallback, x-sluice-prompt, x-sluice-queue-ms,"
    " x-sluice-idempotent-replay"
)


def cors_lines(call: Call, origins: frozenset[str]) -> list[str]:
    """Headers that let a named origin read the answer; none for any other."""
    origin = call.header(b"origin") if origins else None
    if origin is None or origin not in origins:
        return []
    return [
        f"access-control-allow-origin: {origin}",
        f"access-control-expose-headers: {EXPOSED}",
        "vary: origin",
    ]


def preflight_lines(call: Call, origins: frozenset[str]) -> list[str]:
    """What a browser is told besides, when it asks before a request."""
    if not cors_lines(call, origins):
        return []
    return [
        "access-control-allow-methods: GET, POST",
        f"access-control-allow-headers: {ALLOWED}",
        f"access-control-max-age: {PREFLIGHT_S}",
    ]
