"""The options of the remote engine, and the bounds of its connection to the server."""

import os
from dataclasses import dataclass, field
from math import inf
from urllib.parse import urlsplit, urlunsplit

KEY_VARIABLE = "SLUICE_UPSTREAM_KEY"
API_PATH = "/v1"
CREDITS = 64
CONNECT_TIMEOUT_S = 5.0
FIRST_BYTE_TIMEOUT_S = 120.0
IDLE_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 30.0
# Shorter than what servers keep, so that a connection is not used just as it is closed.
KEEPALIVE_S = 2.0
LIST_TIMEOUT_S = 10.0
OUTPUT_FIELDS = ("max_tokens", "max_completion_tokens")


@dataclass(frozen=True, kw_only=True)
class RemoteOptions:
    """`name` is what we offer, `upstream_model` what the server calls it; one serves for both.

    `context_window` None asks the server. The key is read from the environment, never from the
    command line, where every user of the machine could see it. Raises ValueError.
    """

    url: str = ""
    name: str = ""
    upstream_model: str = ""
    context_window: int | None = None
    credits: int = CREDITS
    output_field: str = OUTPUT_FIELDS[0]
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    first_byte_timeout_s: float = FIRST_BYTE_TIMEOUT_S
    idle_timeout_s: float = IDLE_TIMEOUT_S
    key: str = field(default_factory=lambda: os.environ.get(KEY_VARIABLE, ""), repr=False)

    def __post_init__(self) -> None:
        if not self.name and not self.upstream_model:
            raise ValueError("--model-name or --upstream-model: one of them is needed")
        # Frozen: these three are settled once, here.
        object.__setattr__(self, "url", api_url(self.url))
        object.__setattr__(self, "name", self.name or self.upstream_model)
        object.__setattr__(self, "upstream_model", self.upstream_model or self.name)
        if self.context_window is not None and self.context_window < 1:
            raise ValueError("--context-window: must be at least 1")
        if self.credits < 1:
            raise ValueError("--credits: must be at least 1")
        if self.output_field not in OUTPUT_FIELDS:
            raise ValueError(f"--output-field: must be one of {', '.join(OUTPUT_FIELDS)}")
        for flag in ("connect_timeout", "first_byte_timeout", "idle_timeout"):
            if not 0 < getattr(self, f"{flag}_s") < inf:
                raise ValueError(f"--{flag.replace('_', '-')}: must be more than 0 seconds")
        if not (self.key.isascii() and self.key.isprintable()) or self.key != self.key.strip():
            raise ValueError(f"{KEY_VARIABLE}: has characters that no header can carry")


def api_url(given: str) -> str:
    """Check the server's URL and add the API's path where none is given; raises ValueError."""
    parts = urlsplit(given)
    try:
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole:
        raise ValueError(
            "--url: must be the http:// or https:// URL of an OpenAI-compatible server"
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(f"--url: only host, port and path; a key belongs in {KEY_VARIABLE}")
    path = parts.path.rstrip("/") or API_PATH
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))
