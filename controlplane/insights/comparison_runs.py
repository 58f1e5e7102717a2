"""A comparison that a page has started: the command of the operator in a process of its own.

It asks with a token of ten minutes, which only its environment has, as whoever started it. That it
runs, and what it said where it has failed, is in Redis: every web process tells the same.
"""

import os
import subprocess
import sys
from contextlib import suppress
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import redis
from django.conf import settings
from django.core.exceptions import ValidationError

from controlplane.core.jobs.lives import connect_redis
from controlplane.core.outbound import NotReached, outbound
from controlplane.core.permissions import Action
from controlplane.fleet.models import Gateway
from controlplane.insights.client import KEY_VARIABLE
from controlplane.insights.comparisons import compared_models
from controlplane.tenants.access import require
from controlplane.tenants.models import Project, User
from controlplane.tenants.services import playground_token_create

# Of each of the four ways; the last requests of each may take longer. With the first of each, which
# does not count, a token of the Playground may send no more in a minute.
SECONDS, REQUESTS_MAX = 15, 12
# All of it: its token is good for no longer. Where its web process has died, another comparison
# waits for the rest of this, and of the grace that ends it.
RUN_S_MAX, GRACE_S = 600, 60
SAID_S, SAID_CHARS_MAX = 86_400, 500
SCHEMES = {"ws": "http", "wss": "https"}
_RUNNING, _SAID = "sluice:comparison:running", "sluice:comparison:said"


def comparison_start(
    *, actor: User, project: Project, url: str, large: str | None, small: str | None, requests: int
) -> None:
    """Start it, at the cost of the project; raises ValidationError by field.

    It asks a gateway of all pools where nodes do, if that leads there from here; else at `url`.
    """
    require(actor, Action.FLEET_MANAGE)
    models = compared_models(actor=actor, large=large, small=small)
    token = playground_token_create(actor=actor, project=project, models=set(models))
    argv = [sys.executable, "-m", "controlplane", "compare", "--large", models[0]]
    argv += ["--small", models[1], "--seconds", str(SECONDS), "--requests", str(requests)]
    urls = [*_gateways(), url]
    try:
        with connect_redis() as shared:
            alone = shared.set(_RUNNING, 1, ex=RUN_S_MAX + GRACE_S, nx=True)
            if alone:
                shared.delete(_SAID)
    except redis.RedisError as error:
        raise ValidationError({"project": "Redis does not answer. Try again shortly."}) from error
    if not alone:
        raise ValidationError({"project": "A comparison is running already."})
    Thread(target=_run, args=[urls, argv, token], name="comparison", daemon=True).start()


def comparison_state() -> tuple[bool, str]:
    """Whether one is running, and what the last one said where it has failed."""
    try:
        with connect_redis() as shared:
            found: Any = shared.mget(_RUNNING, _SAID)
    except redis.RedisError:
        return False, ""
    running, said = found
    return running is not None, (said or b"").decode()


def _gateways() -> list[str]:
    """Where the one that was heard last says that it is dialled; none where it does not say."""
    found = Gateway.objects.filter(pools=[]).exclude(url="").order_by("-heartbeat_at")[:1]
    places = [urlsplit(each.url) for each in found]
    return [f"{SCHEMES[place.scheme]}://{place.netloc}" for place in places]


def _leads(url: str) -> bool:
    """Whether anything answers there; networks of a cluster may keep the way shut."""
    try:
        outbound("GET", f"{url}/healthz", headers={}, private=True, bytes_max=1)
    except NotReached:
        return False
    return True


def _run(urls: list[str], argv: list[str], token: str) -> None:
    failed = ""
    try:
        url = next(filter(_leads, urls), urls[-1])
        run = subprocess.run(
            [*argv, "--url", url], cwd=settings.BASE_DIR, env={**os.environ, KEY_VARIABLE: token},
            text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            errors="replace", timeout=RUN_S_MAX,
        )  # fmt: skip
        if run.returncode:
            lines = run.stdout.strip().splitlines()
            failed = lines[-1] if lines else f"It ended with status {run.returncode}."
    except subprocess.TimeoutExpired:
        failed = f"It was not done within {RUN_S_MAX} s."
    except Exception as error:  # Process edge: whoever waits for it is told.
        failed = f"It could not be started: {error}"
    finally:
        with suppress(redis.RedisError), connect_redis() as shared:
            shared.set(_SAID, failed[:SAID_CHARS_MAX], ex=SAID_S)
            shared.delete(_RUNNING)
