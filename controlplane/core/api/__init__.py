"""The framework of /api/: views, callers, schema, idempotency, throttles."""
