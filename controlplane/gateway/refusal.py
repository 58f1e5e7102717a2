"""Every way a request is refused, as one exception that carries the OpenAI error body.

Status, type and code follow the OpenAI API where it has a case for it; those of a key's scopes are
ours, as are `safety_blocked` and `output_truncated`.
"""

from collections.abc import Iterable

from controlplane.gateway.ports import Room
from controlplane.kernel.apis import AWAY, DENIED, INVALID, SERVER_ERROR, Error, error_body
from controlplane.kernel.limits import ReachedLimit

NO_RETRY = (("x-should-retry", "false"),)
NODE_RETRY_S = 5
BAD_REQUEST = 400
MISDIRECTED = 421
UNAVAILABLE = 503
CONTENT_FILTER = "content_filter"


class Refusal(Exception):
    """An answer that is not a completion; `param` is the field at fault, `rooms` of limits,
    `policy` that of a project which it breaks.
    """

    def __init__(
        self,
        status: int,
        code: str | None,
        message: str,
        *,
        kind: str = INVALID,
        param: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.message = message
        self.param = param
        self.headers = headers
        self.degraded: dict[str, object] | None = None
        self.limit: ReachedLimit | None = None
        self.policy = ""
        self.rooms: tuple[Room, ...] = ()

    @property
    def body(self) -> Error:
        """The JSON body: always all four keys; `degraded` besides, where the service is."""
        more = {} if self.degraded is None else {"degraded": self.degraded}
        return error_body(self.message, kind=self.kind, param=self.param, code=self.code, **more)


def bad_field(param: str | None, message: str, code: str | None = None) -> Refusal:
    """400: one field is wrong."""
    return Refusal(BAD_REQUEST, code, message, param=param, headers=NO_RETRY)


def bad_key(message: str) -> Refusal:
    """401: no key, or one that opens nothing."""
    return Refusal(401, "invalid_api_key", message, headers=NO_RETRY)


def unknown_model(name: str) -> Refusal:
    """404: not served here, switched off, or not for this key; all read the same."""
    message = (
        f"The model '{name}' does not exist, is switched off, or you do not have access to it."
    )
    return Refusal(404, "model_not_found", message, param="model", headers=NO_RETRY)


def model_not_allowed(name: str) -> Refusal:
    """403: the key is for other models, whether there is one of this name or not."""
    message = (
        f"This key may not use the model '{name}'. See GET /v1/models for the models it may use."
    )
    return Refusal(403, "model_not_allowed", message, kind=DENIED, param="model", headers=NO_RETRY)


def rule_not_allowed(name: str) -> Refusal:
    """403: a rule sends the name to models that the key is not for, and does not widen it."""
    message = f"A routing rule sends '{name}' to models that this key may not use."
    return Refusal(403, "model_not_allowed", message, kind=DENIED, param="model", headers=NO_RETRY)


def endpoint_not_allowed(endpoint: str, allowed: Iterable[str]) -> Refusal:
    """403: the key is for other endpoints."""
    listed = ", ".join(sorted(allowed)) or "none"
    message = f"This key may not use the endpoint '{endpoint}'. Allowed endpoints: {listed}."
    return Refusal(403, "endpoint_not_allowed", message, kind=DENIED, headers=NO_RETRY)


def ip_not_allowed(caller: str) -> Refusal:
    """403: the key does not open to callers from there."""
    message = f"This key may not be used from the address {caller or 'of this socket'}."
    return Refusal(403, "ip_not_allowed", message, kind=DENIED, headers=NO_RETRY)


def over_budget(message: str, code: str = "insufficient_quota") -> Refusal:
    """429 that no retry will cure."""
    return Refusal(429, code, message, kind="insufficient_quota", headers=NO_RETRY)


def unavailable(code: str, message: str, *, retry_after_s: int) -> Refusal:
    """503 with an honest time to come back."""
    headers = (("retry-after", str(retry_after_s)),)
    return Refusal(UNAVAILABLE, code, message, kind=AWAY, headers=headers)


def over_share(what: str, *, retry_after_s: int) -> Refusal:
    """429: as many as one organization may have under way beside others."""
    message = f"Your organization has too many {what} in progress. Try again in {retry_after_s} s."
    headers = (("retry-after", str(retry_after_s)),)
    return Refusal(429, "rate_limit_exceeded", message, kind="requests", headers=headers)


def no_node(model: str) -> Refusal:
    """503: nothing serves this model just now; said at once, before anything is spent."""
    message = f"No node serves '{model}' at the moment. Try again in {NODE_RETRY_S} s."
    return unavailable("no_node_available", message, retry_after_s=NODE_RETRY_S)


def misdirected(model: str) -> Refusal:
    """421: nodes of the model's pool are on other gateways, where a proxy can send it unchanged."""
    message = f"This gateway does not serve '{model}'. Send the request to a gateway of its pool."
    return Refusal(MISDIRECTED, "pool_elsewhere", message)


def timed_out(deadline_s: int) -> Refusal:
    """504: the request used up its whole time; another try would too."""
    message = (
        f"The request did not finish within {deadline_s} s. The output that was delivered "
        "is charged."
    )
    return Refusal(504, "deadline_exceeded", message, kind=SERVER_ERROR, headers=NO_RETRY)


def node_rejected(code: str, reason: str, *, grammar_field: str) -> Refusal:
    """What a node says of a job that no other node would take either."""
    if code == "bad_grammar":
        return bad_field(grammar_field, f"'{grammar_field}' is not supported: {reason}.")
    if code == "too_long":
        message = f"The request does not fit the nodes that serve this model: {reason}"
        return bad_field(None, message, "context_length_exceeded")
    if code == CONTENT_FILTER:
        return content_filtered(f"The server behind this model refused the content: {reason}")
    if code == "bad_request":
        return bad_field(None, f"The server behind this model refused the request: {reason}")
    return internal_error("node_rejected", f"The node refused the request: {reason}.")


def content_filtered(message: str) -> Refusal:
    """400: what was asked or answered is not let through; another model may."""
    return bad_field(None, message, "content_filter")


def internal_error(code: str, message: str) -> Refusal:
    """A failure of ours after work began; charged for what was delivered, so not to be retried."""
    return Refusal(500, code, message, kind=SERVER_ERROR, headers=NO_RETRY)


def grammar_failed(field: str) -> Refusal:
    """The grammar was taken, and grew too complex to follow on the way."""
    message = f"Generation stopped: '{field}' became too complex. Simplify it."
    return internal_error("grammar_failed", message)


def node_lost() -> Refusal:
    """A stream's node failed after its first token."""
    message = "The node failed during generation. The output that was delivered is charged."
    return internal_error("node_lost", message)
