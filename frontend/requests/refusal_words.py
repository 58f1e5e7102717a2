"""Why a request was refused or broken off: a sentence for each error code, and for each lack."""

REFUSALS = {
    "bad_request": "A field was invalid, or the body was not JSON.",
    "unknown_parameter": "It had an unknown field.",
    "missing_required_parameter": "A required field was missing.",
    "unsupported_parameter": "It had a field that is not supported.",
    "context_length_exceeded": "Prompt and output did not fit the model's context window.",
    "model_task_mismatch": "The model does not support this task.",
    "unsupported_dimensions": "The model does not support the requested dimensions.",
    "invalid_api_key": "The key was missing, malformed, unknown, revoked or expired.",
    "model_not_allowed": "The key does not allow the model.",
    "endpoint_not_allowed": "The key does not allow the endpoint.",
    "ip_not_allowed": "The key does not allow the client's network.",
    "model_not_found": "The model is not served.",
    "prompt_not_found": "The prompt template is not published for this key.",
    "unknown_url": "The URL is unknown.",
    "method_not_allowed": "The URL does not support this method.",
    "idempotency_in_progress": "Another request with the same Idempotency-Key was in progress.",
    "idempotency_charged": "The first request with the same Idempotency-Key was already charged.",
    "idempotency_mismatch": "The Idempotency-Key was used with a different body.",
    "request_timeout": "The body did not arrive in time.",
    "unsupported_encoding": "The body had a Content-Encoding.",
    "request_too_large": "The body was too large.",
    "headers_too_large": "The headers were too large.",
    "url_too_long": "The URL was too long.",
    "too_many_values": "The body had too many objects, lists or strings.",
    "invalid_header": "A header was missing, invalid or sent with two values.",
    "unsupported_content_type": "The content type was not JSON.",
    "unsupported_transfer_encoding": "The transfer encoding was not chunked.",
    "unsupported_http_version": "It was neither HTTP/1.1 nor HTTP/1.0.",
    "malformed_request": "It was not a valid HTTP request.",
    "upgrade_refused": "It requested a protocol upgrade and had a body.",
    "too_many_pipelined": "Too many requests were pipelined on its connection.",
    "too_many_connections": "Too many connections were open.",
    "database_unavailable": "PostgreSQL was unavailable.",
    "rate_limit_exceeded": (
        "A limit of its key, project or organization was used up: requests or tokens a minute,"
        " requests a day, or concurrent requests."
    ),
    "insufficient_quota": (
        "A budget of its key, project or organization was lower than its maximum cost."
    ),
    "shed_for_objective": (
        "Requests of its priority were shed while an objective of the installation was breaching."
    ),
    "server_is_overloaded": (
        "Every suitable node and the queue were full, the wait would have been too long, or every "
        "attempt failed."
    ),
    "no_node_available": "No node served the model.",
    "ledger_unavailable": "The ledger was unavailable.",
    "configuration_unavailable": "The gateway had just started and had no configuration yet.",
    "gateway_stopping": "The gateway was shutting down.",
    "grammar_failed": "The schema or grammar became too complex during generation.",
    "internal_error": "A defect in Sluice; report it with the request's id.",
    "node_lost": "The node failed after the first token.",
    "node_rejected": "A node refused what the gateway had accepted; report it with the id.",
    "slow_reader": "The client read too slowly, so generation stopped.",
    "deadline_exceeded": "It reached its deadline.",
}
# What the fleet lacked, where a record says so.
LACKS = {
    "full": "Every suitable node and the queue were full.",
    "late": "Every suitable node was full, and the wait would have been too long.",
    "none": "No suitable node remained.",
    "failed": "Every attempt failed, up to the retry limit.",
    "shed": REFUSALS["shed_for_objective"],
}
