"""What one run of load does: its bounds, whom it may ask, and when each request is due."""

import random
from collections.abc import Mapping
from ipaddress import ip_address
from itertools import accumulate
from typing import Annotated, Any
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Meta

from controlplane.insights.load import workloads

ARRIVALS = POISSON, CONSTANT = "poisson", "constant"
# Starts are due at the same times in each run, so that runs can be compared.
SEED = 7
API_PATH = "/v1"
MIX_ALL = "all"


class LoadError(Exception):
    """Load that cannot be as it was asked for; the text says what to change."""


class LoadSetup(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `rate` is 0 for a closed loop of `streams`; `kinds` are `workloads.REFERENCE`, or
    others of that module's names; `extra_body` are more fields of each body.
    """

    url: str
    model: str
    kinds: tuple[str, ...] = (workloads.REFERENCE,)
    arrivals: str = POISSON
    extra_body: dict[str, Any] = {}
    requests: Annotated[int, Meta(ge=1, le=50_000, title="most that is sent")] = 200
    seconds: Annotated[float, Meta(ge=1, le=3_600, title="time for starts")] = 60.0
    streams: Annotated[int, Meta(ge=1, le=1_024, title="closed loop: at once")] = 8
    rate: Annotated[float, Meta(ge=0, le=1_000, title="open loop: starts a second")] = 0.0
    concurrency: Annotated[int, Meta(ge=1, le=1_024, title="most requests on the wire")] = 64
    output_tokens: Annotated[int, Meta(ge=1, le=4_096, title="longest answer")] = (
        workloads.OUTPUT_TOKENS
    )
    turns: Annotated[int, Meta(ge=1, le=32, title="requests of an agent")] = 4
    window: Annotated[int, Meta(ge=1, le=1_000_000, title="exceeded by beyond-window")] = 32_768

    @property
    def fields(self) -> dict[str, Any]:
        """What bodies of all requests have."""
        return {"model": self.model, "max_tokens": self.output_tokens, **self.extra_body}

    @property
    def loop(self) -> str:
        """How starts are planned and where latencies begin, for people."""
        if self.rate:
            how = (
                f"{self.rate:g} a second ({self.arrivals}): latencies count from the planned start"
            )
            return f"open loop, {how}, whether or not the request could be sent then"
        how = f"{self.streams} streams: a start is due when the stream's last answer has ended"
        return f"closed loop of {how}, so a slow server is asked less often"

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


# Fields with bounds, which are options of the command.
BOUNDS = {
    field.name: (field.default, field.type.__metadata__[0])
    for field in msgspec.structs.fields(LoadSetup)
    if hasattr(field.type, "__metadata__")
}


def setup_of(options: Mapping[str, Any], *, url: str) -> LoadSetup:
    """A checked run of the command's options; raises LoadError naming the one that is wrong."""
    for name, (_, bound) in BOUNDS.items():
        if not bound.ge <= options[name] <= bound.le:
            raise LoadError(f"--{name.replace('_', '-')}: must be {bound.ge} to {bound.le}.")
    if not options["model"]:
        raise LoadError("--model: must name the model to ask for.")
    if not options["rate"] and options["streams"] > options["concurrency"]:
        raise LoadError("--streams: must be at most --concurrency.")
    try:
        extra = msgspec.json.decode(options["extra_body"], type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise LoadError(f"--extra-body: must be a JSON object: {error}.") from error
    return LoadSetup(
        url=_target(url, allow_remote=options["allow_remote"]),
        model=options["model"],
        kinds=_kinds(options["mix"]),
        arrivals=options["arrivals"],
        extra_body=extra,
        **{name: options[name] for name in BOUNDS},
    )


def _kinds(mix: str | None) -> tuple[str, ...]:
    if mix is None:
        return (workloads.REFERENCE,)
    chosen = workloads.UNHAPPY if mix == MIX_ALL else tuple(mix.split(","))
    if unknown := set(chosen).difference(workloads.UNHAPPY):
        raise LoadError(f"--mix: {', '.join(sorted(unknown))} is not a kind; see --help.")
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
