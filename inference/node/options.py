"""The options of a node, and the named bounds of its end of the link."""

from dataclasses import dataclass, field
from math import inf
from urllib.parse import urlsplit, urlunsplit

FLEET_PATH = "/fleet"
# Reached without a proxy.
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
CREDENTIAL_VARIABLE = "SLUICE_NODE_CREDENTIAL"
ENROL_VARIABLE = "SLUICE_ENROL_TOKEN"
CREDENTIAL_PREFIX = "node_sluice_"

BACKOFF_MIN_S = 0.2
BACKOFF_MAX_S = 2.0
# The longest Retry-After of a gateway that is followed.
RETRY_AFTER_MAX_S = 30.0
OPEN_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 2.0
SILENT_PINGS_MAX = 3
# How long the jobs of a broken link run on until its gateway is reached again.
RESUME_S = 5.0
OUTBOUND_BYTES_MAX = 64 * 1024 * 1024
REPORTS_HELD_MAX = 10_000
REPORT_REPEAT_S = 5.0
LOAD_INTERVAL_S = 0.05
# The longest that a step may compute; no request lives longer.
STEP_S_MAX = 600.0
# Gateways that a node dials at most, however many are listed.
GATEWAYS_MAX = 256
# A link to a gateway that left the list is kept so long: it may only have lost its database.
UNLISTED_S = 10.0
# A gateway that no list has held for so long, and that cannot be reached, is dead.
GONE_S = 5.0
# When an address is dialled again whose gateway takes no nodes of this pool, if another does.
ELSEWHERE_S = 60.0
HOUSEKEEPING_S = 1.0
PROBE_TIMEOUT_S = 120.0
PROBE_INTERVAL_S = 60.0
LOADING_LOG_S = 5.0
DRAIN_POLL_S = 0.05
DRAIN_DEADLINE_S = 30.0
CANCEL_WAIT_S = 5.0
ACK_WAIT_S = 5.0


class BadOption(ValueError):
    """An option that cannot be used; the message names it."""


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """Who the node is and which gateways it dials first; those list the others.

    `credits` is for all gateways together; None takes the engine's own figure. An engine idle for
    `probe_interval_s` must make one token; 0 asks only at the start.
    """

    gateways: tuple[str, ...]
    name: str
    credential: str = field(repr=False)
    pool: str = "default"
    region: str = "local"
    credits: int | None = None
    drain_deadline_s: float = DRAIN_DEADLINE_S
    probe_interval_s: float = PROBE_INTERVAL_S

    def __post_init__(self) -> None:
        seconds = "must be a number of seconds, 0 or more"
        checks = {
            "--gateway: at least one is needed": bool(self.gateways),
            "--name: must not be empty": bool(self.name),
            "--pool: must not be empty": bool(self.pool),
            "--region: must not be empty": bool(self.region),
            f"{CREDENTIAL_VARIABLE}: must begin with {CREDENTIAL_PREFIX}": (
                self.credential.startswith(CREDENTIAL_PREFIX)
            ),
            "--credits: must be at least one": self.credits is None or self.credits >= 1,
            f"--drain-deadline: {seconds}": 0 <= self.drain_deadline_s < inf,
            f"--probe-interval: {seconds}": 0 <= self.probe_interval_s < inf,
        }
        for complaint, holds in checks.items():
            if not holds:
                raise BadOption(complaint)


def gateway_url(given: str) -> str:
    """Check a gateway's URL and add the fleet's path where none is given."""
    parts = urlsplit(given)
    if parts.scheme not in ("ws", "wss") or not parts.hostname:
        raise BadOption(f"--gateway: {given!r} is not a ws:// or wss:// URL")
    if parts.username is not None or parts.query or parts.fragment:
        raise BadOption("--gateway: only host, port and path belong in the URL")
    path = parts.path if parts.path not in ("", "/") else FLEET_PATH
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))
