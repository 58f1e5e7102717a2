"""What one run of load does: its bounds, whom it may ask, and when each request is due."""

import random
from collections.abc import Iterator
from ipaddress import ip_address
from itertools import accumulate, repeat
from urllib.parse import urlsplit, urlunsplit

import msgspec
from django.core.management.base import CommandError

REQUESTS_DEFAULT, REQUESTS_MAX = 200, 20_000
SECONDS_DEFAULT, SECONDS_MAX = 60.0, 3_600.0
STREAMS_DEFAULT, CONCURRENCY_DEFAULT, CONCURRENCY_MAX = 8, 64, 512
RATE_MAX = 1_000.0
OUTPUT_DEFAULT, OUTPUT_MAX = 150, 4_096
TURNS_DEFAULT, TURNS_MAX = 4, 32
WINDOW_DEFAULT, WINDOW_MAX = 32_768, 1_000_000
REPEAT_MAX = 20
POISSON, CONSTANT = "poisson", "constant"
# Starts are due at the same times in each run, so that runs can be compared.
SEED = 7
API_PATH = "/v1"


class LoadSetup(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `rate` is in requests a second, 0 for a closed loop of `streams`; `requests` counts
    everything that is sent, `seconds` is the time in which requests may start, `window` the tokens
    that the longest prompt exceeds. `kinds` are names of `workloads.KINDS`.
    """

    url: str
    model: str
    kinds: tuple[str, ...]
    streams: int = STREAMS_DEFAULT
    rate: float = 0.0
    arrivals: str = POISSON
    requests: int = REQUESTS_DEFAULT
    seconds: float = SECONDS_DEFAULT
    concurrency: int = CONCURRENCY_DEFAULT
    output_tokens: int = OUTPUT_DEFAULT
    turns: int = TURNS_DEFAULT
    window: int = WINDOW_DEFAULT

    @property
    def loop(self) -> str:
        """How starts are planned and where latencies begin, for people."""
        if not self.rate:
            return (
                f"closed loop of {self.streams} streams: a start is due when the stream's last "
                "answer has ended, so a slow server is asked less often"
            )
        return (
            f"open loop, {self.rate:g} a second ({self.arrivals}): latencies count from the "
            "planned start, whether or not the request could be sent then"
        )

    def starts_s(self) -> Iterator[float]:
        """When requests of an open loop are due, in seconds from the beginning, without an end."""
        if self.arrivals == CONSTANT:
            return accumulate(repeat(1 / self.rate), initial=0.0)
        chance = random.Random(SEED)
        return accumulate(iter(lambda: chance.expovariate(self.rate), None), initial=0.0)


def target(given: str, *, allow_remote: bool) -> str:
    """The API's address, with its path where none is given. Raises CommandError for what is no
    URL, and for another machine unless that is allowed.
    """
    parts = urlsplit(given)
    try:
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or parts.username is not None or parts.query or parts.fragment:
        raise CommandError("--url: must be like http://127.0.0.1:8000, without user or query.")
    if not allow_remote and not _loopback(parts.hostname or ""):
        raise CommandError(
            f"--url: {parts.hostname} is not this machine. Load on a server that others use can "
            "stop it, and costs money; say --allow-remote if it is yours."
        )
    return urlunsplit((*parts[:2], parts.path.rstrip("/") or API_PATH, "", ""))


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        # Names are not looked up: they may lead elsewhere when they are asked for again.
        return host == "localhost"
