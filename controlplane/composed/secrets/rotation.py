"""Secrets replaced while Sluice serves, in two steps.

`secret_rotate` makes a new value, which counts beside the old one once processes are restarted;
`secret_settle` seals again what the old one sealed, and forgets it. Passwords of PostgreSQL need no
second step: running processes read the new one with their next connection.
"""

import secrets
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from controlplane.connections.keys import keys_reseal
from controlplane.contents.services import contents_rewrap
from controlplane.core.database_roles import conninfo_of, password_change, password_of
from controlplane.core.permissions import organization_scope
from controlplane.embedded.layout import REDIS_PROGRAMS, embedded_layout
from controlplane.embedded.processes import RunFile, end_left_overs, living
from controlplane.fleet.models import NodeCredential
from controlplane.hosts.models import Host
from controlplane.settings.secret_files import (
    BEFORE,
    FROM_VARIABLES,
    SECRET_BYTES,
    SECRETS_GIVEN,
    kept_secret,
    passfile,
    replace_private,
    secrets_before,
)
from controlplane.slos.channels.delivery import WEBHOOK, signing_secret
from controlplane.slos.models import EVERYONE, Channel
from controlplane.slos.services import channels_reseal
from controlplane.tenants.models import AdminKey, ApiKey, Organization
from controlplane.tenants.sign_in.factors import factors_reseal

BEFORE_MAX = 5
REDIS_STOP_S_MAX = 5.0


class SecretError(Exception):
    """Why a secret cannot be replaced here, and what to do."""


class TurningSecret(NamedTuple):
    """A secret that overlaps with its successor; `reseal` says how many things it sealed."""

    variable: str
    reseal: Callable[[], int] | None = None


def _of_each(work: Callable[..., int], *more: object) -> int:
    ids = [*Organization.objects.values_list("id", flat=True), *more]
    return sum(work(each) for each in ids)


TURNING = {
    "django": TurningSecret("SLUICE_SECRET_KEY"),
    "key-pepper": TurningSecret("SLUICE_KEY_PEPPER"),
    "factor-key": TurningSecret("SLUICE_FACTOR_KEY", factors_reseal),
    "webhook-key": TurningSecret("SLUICE_WEBHOOK_KEY", lambda: _of_each(channels_reseal, EVERYONE)),
    "connection-key": TurningSecret("SLUICE_CONNECTION_KEY", keys_reseal),
    "content-key": TurningSecret("SLUICE_CONTENT_KEY", lambda: _of_each(contents_rewrap)),
    "redis": TurningSecret("REDIS_URL"),
}
# Passwords by the connection of the settings that has them.
PASSWORDS = {
    "postgres-app": ("default", "DATABASE_URL"),
    "postgres-owner": ("owner", "DATABASE_OWNER_URL"),
    "postgres-gateway": ("gateway", "DATABASE_GATEWAY_URL"),
}
NAMES = (*TURNING, *PASSWORDS)


def secret_rotate(name: str) -> str:
    """Make another value; returns what remains to be done. Raises SecretError."""
    if name in PASSWORDS:
        return _password_rotate(name)
    turning = _here(name)
    before = [kept_secret(name), *secrets_before(turning.variable, name)]
    if len(before) > BEFORE_MAX:
        raise SecretError(
            f"{name} has {BEFORE_MAX} earlier values; what the oldest sealed would be lost. "
            f"First: sluice secrets settle {name}"
        )
    # The old one first: whoever starts in between finds it in both places.
    replace_private(_before(name), "\n".join(before) + "\n")
    replace_private(_file(name), secrets.token_urlsafe(SECRET_BYTES) + "\n")
    if name == "redis":
        # Whoever keeps it running starts it again, with both passwords.
        layout = embedded_layout(Path(settings.DATA_DIR))
        for program in REDIS_PROGRAMS:
            end_left_overs(program, layout.redis, polite=signal.SIGTERM, seconds=REDIS_STOP_S_MAX)
    return (
        f"{name} has a new value, and the old one counts beside it. Restart Sluice, gateways "
        f"first, then: sluice secrets settle {name}"
    )


def secret_settle(name: str, *, despite_keys: bool = False) -> str:
    """Forget earlier values, and seal again what they sealed; raises SecretError.

    Of the pepper only where no key is left that was made under an earlier one, or `despite_keys`.
    A secret that is given from outside is forgotten there, so of those only seals are made anew.
    """
    if TURNING[name].reseal and (place := _given(name)):
        return _sealed_again(name, place)
    turning = _here(name)
    if not _before(name).exists():
        return f"{name} has no earlier value."
    since = datetime.fromtimestamp(_file(name).stat().st_mtime, UTC)
    _require_restarted(since)
    if name == "key-pepper" and not despite_keys and (left := _keys_before(since)):
        raise SecretError(
            f"{left} keys of clients, admins, nodes and hosts were made before {since:%F %T} UTC "
            "and would end. Rotate them first, or end them with --yes."
        )
    count = turning.reseal() if turning.reseal else 0
    _before(name).unlink()
    sealed = f" {count} sealed again." if turning.reseal else ""
    return f"Earlier values of {name} count no more, once Sluice is restarted.{sealed}"


def webhooks_told() -> str:
    """A line for each webhook of alerts: whose it is, where it goes, its present signing secret."""
    names = {EVERYONE: "installation"} | dict(Organization.objects.values_list("id", "name"))
    with organization_scope(names):
        found = list(Channel.objects.filter(kind=WEBHOOK).order_by("organization", "id"))
    lines = (f"{names[c.organization]}  {c.shown}  {signing_secret(c.id)}" for c in found)
    return "\n".join(lines) or "There is no webhook."


def _sealed_again(name: str, place: str) -> str:
    turning = TURNING[name]
    assert turning.reseal is not None
    if not secrets_before(turning.variable, name):
        return f"{name} has no earlier value in {place}."
    count = turning.reseal()
    told = "Once every process has the present one, take the earlier values out of"
    return f"{count} sealed again under the present {name}. {told} {place}."


def _given(name: str) -> str:
    """Where a secret's earlier values are, if not in this installation's own folder."""
    if name in FROM_VARIABLES:
        return f"{TURNING[name].variable}_BEFORE"
    return f"{settings.SECRETS_DIR}/{name}{BEFORE}" if SECRETS_GIVEN else ""


def _here(name: str) -> TurningSecret:
    """Of a secret that is kept in this installation's own folder."""
    turning = TURNING[name]
    if name in FROM_VARIABLES or (name == "redis" and not settings.EMBEDDED_REDIS):
        told = f"{name} is set by {turning.variable}: put another value there"
        rest = f", and the present one into {turning.variable}_BEFORE until nothing needs it."
        if name == "redis":
            rest = ", once `ACL SETUSER NAME >PASSWORD` has added it to your Redis; it takes both."
        raise SecretError(told + rest)
    _require_own(name)
    return turning


def _require_own(name: str) -> None:
    if SECRETS_GIVEN:
        raise SecretError(
            f"{settings.SECRETS_DIR} is filled by whoever starts the processes: put another value "
            f"there, and the present one as a line into {name}{BEFORE}."
        )


def _password_rotate(name: str) -> str:
    alias, variable = PASSWORDS[name]
    database = settings.DATABASES[alias]
    if "passfile" not in database["OPTIONS"]:
        raise SecretError(f"{name} is in {variable}: ALTER ROLE, then change it there.")
    _require_own(name)
    password = secrets.token_urlsafe(SECRET_BYTES)

    def publish() -> None:
        replace_private(_file(name), password + "\n")
        passfile(name)

    password_change(conninfo_of(database, password=password_of(database)), password, publish)
    return f"{name} has a new password, which every new connection uses. Nothing is left to do."


def _require_restarted(since: datetime) -> None:
    """Return unless a process of this machine has only the earlier value."""
    run = RunFile(Path(settings.DATA_DIR)).read()
    for known in (run.supervisor, *run.children) if run else ():
        process = living(known)
        if process is not None and process.create_time() < since.timestamp():
            raise SecretError(f"{known.name} runs with the earlier value only: restart Sluice.")


def _keys_before(since: datetime) -> int:
    """How many keys that live were made before that moment."""
    old = Q(created_at__lt=since, revoked_at=None)
    living_keys = old & (Q(expires_at=None) | Q(expires_at__gt=timezone.now()))
    with organization_scope(Organization.objects.values_list("id", flat=True)):
        count = sum(rows.objects.filter(living_keys).count() for rows in (ApiKey, AdminKey))
    count += NodeCredential.objects.filter(old).count()
    return count + Host.objects.filter(created_at__lt=since).count()


def _file(name: str) -> Path:
    return Path(settings.SECRETS_DIR) / name


def _before(name: str) -> Path:
    return _file(f"{name}{BEFORE}")
