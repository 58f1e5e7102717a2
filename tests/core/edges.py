"""Who answers paths outside Django's routes: the gateway, sockets and the entrance itself."""

from controlplane.probes import PATHS as PROBES

# Paths of the gateway's own; each takes an inference key and nothing else opens it.
GATEWAY: tuple[tuple[str, str], ...] = (
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/responses"),
    ("GET", "/v1/responses/resp_1"),
    ("DELETE", "/v1/responses/resp_1"),
    ("GET", "/v1/responses/resp_1/input_items"),
    ("POST", "/v1/responses/resp_1/cancel"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/v1/rerank"),
    ("POST", "/v1/score"),
    ("POST", "/v1/moderations"),
    ("POST", "/v1/tokenize"),
    ("POST", "/v1/detokenize"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/tiny"),
    ("GET", "/v1/key"),
    ("POST", "/v1/preflight"),
    ("POST", "/v1/requests/req_1/feedback"),
    ("POST", "/v1/files"),
    ("POST", "/v1/batches"),
)
# And what it tells everybody.
GATEWAY_PUBLIC = frozenset({"/v1/openapi.json"})
# What others offer and it does not, which it says to everybody.
GATEWAY_NOT_OFFERED = frozenset(
    {"/v1/assistants", "/v1/audio", "/v1/images", "/v1/realtime", "/v1/threads",
     "/v1/vector_stores", "/v1/videos"}
)  # fmt: skip
# Sockets: figures for members, and the nodes' own.
SOCKETS = frozenset({"/live", "/fleet"})
# What the entrance itself tells apart, prefixes included; the two checks are public.
EDGES = frozenset({"/fleet", "/live", "/v1/", "/v1/organization/", "/metrics", "/version"}) | PROBES
# Clients' paths outside `/v1`: those that are served there too, and those that lack it.
CLIENT_EDGES = frozenset(
    {"/rerank", "/v2/rerank", "/score", "/tokenize", "/detokenize",
     "/chat/", "/completions", "/embeddings", "/messages", "/models", "/responses"}
)  # fmt: skip
