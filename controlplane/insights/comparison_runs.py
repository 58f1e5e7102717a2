"""A comparison that a page has started: the command of the operator in a process of its own.

It asks with a token of ten minutes, which only its environment has, as whoever started it.
"""

import os
import subprocess
import sys

from django.conf import settings
from django.core.exceptions import ValidationError

from controlplane.core.permissions import Action
from controlplane.insights.client import KEY_VARIABLE
from controlplane.insights.comparisons import compared_models
from controlplane.tenants.access import require
from controlplane.tenants.models import Project, User
from controlplane.tenants.services import playground_token_create

# Of each of the four ways; the last requests of each may take longer. With the first of each, which
# does not count, a token of the Playground may send no more in a minute.
SECONDS, REQUESTS_MAX = 15, 12
TOLD_CHARS_MAX = 60_000


# One at a time in a web process, with what it has said once it is over.
_runs: list[subprocess.Popen[str]] = []
_said: dict[int, str] = {}


def comparison_start(
    *, actor: User, project: Project, url: str, large: str | None, small: str | None, requests: int
) -> None:
    """Start it, at the cost of the project; raises ValidationError by field."""
    require(actor, Action.FLEET_MANAGE)
    if comparison_state()[0]:
        raise ValidationError({"project": "A comparison is running already."})
    models = compared_models(actor=actor, large=large, small=small)
    token = playground_token_create(actor=actor, project=project, models=set(models))
    argv = [sys.executable, "-m", "controlplane", "compare", "--url", url]
    argv += ["--large", models[0], "--small", models[1], "--seconds", str(SECONDS)]
    argv += ["--requests", str(requests)]
    _runs[:] = [subprocess.Popen(
        argv, cwd=settings.BASE_DIR, env={**os.environ, KEY_VARIABLE: token}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        errors="replace",
    )]  # fmt: skip
    _said.clear()


def comparison_state() -> tuple[bool, str]:
    """Whether one is running, and what the last one said where it has failed."""
    if not _runs:
        return False, ""
    [run] = _runs
    if run.poll() is None:
        return True, ""
    # It says a line for each way, which a pipe holds until it is read.
    if run.pid not in _said and run.stdout is not None:
        with run.stdout:
            lines = run.stdout.read(TOLD_CHARS_MAX).strip().splitlines()
        _said[run.pid] = lines[-1] if lines else f"It ended with status {run.returncode}."
    return False, _said.get(run.pid, "") if run.returncode else ""
