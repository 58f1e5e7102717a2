"""Who calls in the authorization matrix: people in each role, strangers, each kind of token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.test import Client

from controlplane.core.permissions import MATRIX, PLATFORM_ACTIONS, Action, Role
from controlplane.core.stepup import session_confirm
from controlplane.tenants.models import User

OTHER_OWNER, STAFF, OPERATOR = "other tenant's owner", "staff", "operator"
# Of the organization under test, made by its owner for everything that keys can be for.
ADMIN_KEY = "admin key"
# Staff of the installation who is a viewer of the organization.
ROLES = {**{role.value: role for role in Role}, STAFF: Role.VIEWER}
SESSIONS = (*ROLES, OTHER_OWNER)
TOKENS = ("inference key", "metrics token", ADMIN_KEY, OPERATOR)
ANONYMOUS = "anonymous"
ALL = (*SESSIONS, *TOKENS, ANONYMOUS)


@dataclass(frozen=True)
class Callers:
    """The people and tokens of the organization under test; `user` and `token` by caller's name."""

    users: dict[str, User]
    inference_key: str
    admin_key: str

    def client(self, name: str, *, csrf: bool = False, confirmed: bool = True) -> Client:
        """A fresh client that calls as this one; with `csrf` its token is asked for."""
        headers: dict[str, Any] = {}
        if name in TOKENS:
            headers["HTTP_AUTHORIZATION"] = f"Bearer {self.token(name)}"
        client = Client(raise_request_exception=False, enforce_csrf_checks=csrf, **headers)
        if name in SESSIONS:
            sign_in(client, self.users[name], confirmed=confirmed)
        return client

    def token(self, name: str) -> str:
        """What this caller sends as a bearer token."""
        made: dict[str, Callable[[], str]] = {
            "inference key": lambda: self.inference_key,
            "metrics token": lambda: settings.METRICS_TOKEN,
            ADMIN_KEY: lambda: self.admin_key,
            OPERATOR: lambda: settings.OPERATOR_TOKEN,
        }
        return made[name]()


def sign_in(client: Client, user: User, *, confirmed: bool = True) -> None:
    """A session as it is right after a full sign-in, or some time later."""
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    if not confirmed:
        return
    session = client.session
    session_confirm(session)
    session.save()


def member_may(name: str, action: Action) -> bool:
    """Whether a member of the organization, by the caller's name, may do it."""
    if action in PLATFORM_ACTIONS:
        return name == STAFF
    return action in MATRIX[ROLES[name]]
