"""What one run of load does: its bounds, whom it may ask, and when each request is due."""

import random
from ipaddress import ip_address
from itertools import accumulate
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import msgspec

from controlplane.insights.load import workloads

ARRIVALS = POISSON, CONSTANT = "poisson", "constant"
# Starts are due at the same times in each run, so that runs can be compared.
SEED = 7
API_PATH = "/v1"
MIX_ALL = "all"


class LoadError(Exception):
    """Load that cannot be as it was asked for; the text says what to change."""


class LoadBound(NamedTuple):
    """A number that may be given: its default, least and most, and what it is."""

    default: int | float
    least: int
    most: int
    words: str


BOUNDS = {
    "requests": LoadBound(200, 1, 50_000, "requests of a run"),
    "seconds": LoadBound(60.0, 1, 3_600, "time for starts of a run"),
    "streams": LoadBound(8, 1, 1_024, "closed loop: at once"),
    "rate": LoadBound(0.0, 0, 1_000, "open loop: starts a second; 0 is the closed loop"),
    "concurrency": LoadBound(64, 1, 1_024, "most requests on the wire"),
    "output-tokens": LoadBound(workloads.OUTPUT_TOKENS, 1, 4_096, "longest answer"),
    "turns": LoadBound(4, 1, 32, "requests of an agent"),
    "window": LoadBound(32_768, 1, 1_000_000, "tokens that beyond-window exceeds"),
    "repeat": LoadBound(1, 1, 20, "runs, one after another"),
}


class LoadSetup(msgspec.Struct, frozen=True, kw_only=True):
    """One run, within `BOUNDS`. `rate` is in requests a second, 0 for a closed loop of `streams`;
    `requests` counts everything that is sent, `seconds` is the time in which requests may start,
    `window` the tokens that the longest prompt exceeds, `extra_body` fields of each body.
    `kinds` are `workloads.REFERENCE`, or others of that module's names.
    """

    url: str
    model: str
    kinds: tuple[str, ...]
    arrivals: str
    requests: int
    seconds: float
    streams: int
    rate: float
    concurrency: int
    output_tokens: int
    turns: int
    window: int
    extra_body: dict[str, Any]

    @property
    def fields(self) -> dict[str, Any]:
        """What bodies of all requests have."""
        return {"model": self.model, "max_tokens": self.output_tokens, **self.extra_body}

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

    def starts_s(self) -> list[float]:
        """When requests of an open loop are due, in seconds from the beginning. However they are
        spread, the whole takes as long as the rate says.
        """
        count = max(1, min(self.requests, int(self.rate * self.seconds)))
        if self.arrivals == CONSTANT:
            return [number / self.rate for number in range(count)]
        chance = random.Random(SEED)
        ends = list(accumulate(chance.expovariate(1) for _ in range(count)))
        return [end / ends[-1] * count / self.rate for end in ends]


def setup_of(options: dict[str, Any], *, url: str, mix: str | None) -> LoadSetup:
    """A checked run of what was given, by names of `BOUNDS`; raises LoadError naming the option."""
    numbers: dict[str, Any] = {}
    for name, bound in BOUNDS.items():
        field = name.replace("-", "_")
        numbers[field] = options.get(field, bound.default)
        if not bound.least <= numbers[field] <= bound.most:
            raise LoadError(f"--{name}: must be {bound.least:g} to {bound.most:g}.")
    del numbers["repeat"]
    if not options.get("model"):
        raise LoadError("--model: must name the model to ask for.")
    if not numbers["rate"] and numbers["streams"] > numbers["concurrency"]:
        raise LoadError("--streams: must be at most --concurrency.")
    return LoadSetup(
        url=_target(url, allow_remote=options.get("allow_remote", False)),
        model=options["model"],
        kinds=_kinds(mix),
        arrivals=options.get("arrivals", POISSON),
        extra_body=_object(options.get("extra_body") or "{}"),
        **numbers,
    )


def _object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise LoadError(f"--extra-body: must be a JSON object: {error}.") from error


def _kinds(mix: str | None) -> tuple[str, ...]:
    if mix is None:
        return (workloads.REFERENCE,)
    chosen = workloads.UNHAPPY if mix == MIX_ALL else tuple(mix.split(","))
    unknown = [name for name in chosen if name not in workloads.UNHAPPY]
    if unknown:
        raise LoadError(f"--mix: {', '.join(unknown)} is not a kind; see --help.")
    return (workloads.PLAIN, *chosen)


def _target(given: str, *, allow_remote: bool) -> str:
    """The API's address, with its path where none is given."""
    parts = urlsplit(given)
    try:
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or parts.username is not None or parts.query or parts.fragment:
        raise LoadError("--url: must be like http://127.0.0.1:8000, without user or query.")
    if not allow_remote and not _loopback(parts.hostname or ""):
        raise LoadError(
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
