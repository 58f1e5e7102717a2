"""Why a request was refused or broken off: a sentence for each error code, and for each lack."""

from __future__ import annotations

REFUSALS = {
    "bad_request": "A field of it was wrong, or its body was not JSON.",
    "unknown_parameter": "It had a field that this API does not know.",
    "missing_required_parameter": "A field that must be there was not.",
    "unsupported_parameter": "It had a field of the API that is not offered here.",
    "context_length_exceeded": "Prompt and output did not fit the model's context window.",
    "model_task_mismatch": "The model named does not do this: it embeds, or it generates.",
    "unsupported_dimensions": "The model's vectors cannot be cut to the size asked for.",
    "invalid_api_key": "Its key was missing, malformed, unknown, revoked or expired.",
    "model_not_allowed": "Its key is for other models.",
    "endpoint_not_allowed": "Its key is for other endpoints.",
    "ip_not_allowed": "Its key does not open to callers from that network.",
    "model_not_found": "The model it named is not served.",
    "prompt_not_found": "The prompt template it named is not published for this key.",
    "unknown_url": "There is no such path.",
    "method_not_allowed": "The path is there with another method.",
    "idempotency_in_progress": "Another request with its Idempotency-Key was under way.",
    "idempotency_charged": "The first request with its Idempotency-Key was charged already.",
    "idempotency_mismatch": "Its Idempotency-Key had been used with another body.",
    "request_timeout": "Its body did not arrive in time.",
    "unsupported_encoding": "Its body came with a Content-Encoding.",
    "request_too_large": "Its body was over the bound.",
    "headers_too_large": "Its headers were over the bound.",
    "url_too_long": "Its URL was over the bound.",
    "too_many_values": "Its body had more objects, lists or texts than are read.",
    "invalid_header": "A header that counts once was missing, wrong or sent with two values.",
    "unsupported_content_type": "Its body was said to be something other than JSON.",
    "unsupported_transfer_encoding": "Its body was coded otherwise than chunked.",
    "unsupported_http_version": "It was neither HTTP/1.1 nor HTTP/1.0.",
    "malformed_request": "Its bytes were not one clear HTTP request.",
    "upgrade_refused": "It asked for another protocol and had a body.",
    "too_many_pipelined": "Too many requests waited in its connection.",
    "too_many_connections": "Too many connections were open.",
    "database_unavailable": "PostgreSQL could not be reached at that moment.",
    "rate_limit_exceeded": (
        "A limit of its key, project or organization was used up: requests or tokens a minute,"
        " requests a day, or requests at once."
    ),
    "insufficient_quota": (
        "A budget of its key, project or organization had no room for the most it could cost."
    ),
    "shed_for_objective": (
        "Requests of its priority were kept out while an objective of the installation was in"
        " danger."
    ),
    "server_is_overloaded": (
        "Every node that could serve it was full and the queue too, the wait would have been too"
        " long, or every attempt failed."
    ),
    "no_node_available": "No node served the model at that moment.",
    "ledger_unavailable": "The ledger could not be written at that moment.",
    "configuration_unavailable": "The gateway had just started and knew no configuration yet.",
    "gateway_stopping": "The gateway was being stopped.",
    "grammar_failed": "What the output had to match grew too complex on the way.",
    "internal_error": "A defect in Sluice; report it with the request's id.",
    "node_lost": "Its node failed after the first token had gone out.",
    "node_rejected": "A node refused what the gateway had accepted; report it with the id.",
    "slow_reader": "Its client read so slowly that generation was stopped.",
    "deadline_exceeded": "It used up its whole time.",
}
# What the fleet lacked, where a record says so.
LACKS = {
    "full": "Every node that could serve it was full, and so was the queue for them.",
    "late": "Every node that could serve it was full, and the wait would have been too long.",
    "none": "No node that could serve it was left.",
    "failed": "Every node that took it failed, as often as it may be tried again.",
    "shed": REFUSALS["shed_for_objective"],
}
