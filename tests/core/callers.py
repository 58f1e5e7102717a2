"""Who calls in the authorization matrix: people in each role, strangers, each kind of token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.contrib.sessions.models import Session
from django.test import Client
from django.test.client import ClientHandler

from controlplane.core.api.stepup import session_confirm
from controlplane.core.permissions import MATRIX, PLATFORM_ACTIONS, Action, Role
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
# Each loads the middleware once, for all clients.
HANDLERS = {csrf: ClientHandler(enforce_csrf_checks=csrf) for csrf in (False, True)}


@dataclass(frozen=True)
class Callers:
    """The people and tokens of the organization under test; `user` and `token` by caller's name."""

    users: dict[str, User]
    inference_key: str
    admin_key: str
    sessions: dict[tuple[str, bool], str] = field(default_factory=dict)

    def client(self, name: str, *, csrf: bool = False, confirmed: bool = True) -> Client:
        """A fresh client that calls as this one; with `csrf` its token is asked for."""
        headers: dict[str, Any] = {}
        if name in TOKENS:
            headers["HTTP_AUTHORIZATION"] = f"Bearer {self.token(name)}"
        client = Client(raise_request_exception=False, enforce_csrf_checks=csrf, **headers)
        client.handler = HANDLERS[csrf]
        if name in SESSIONS:
            client.cookies[settings.SESSION_COOKIE_NAME] = self._session(name, confirmed)
        return client

    def _session(self, name: str, confirmed: bool) -> str:
        """The key of a session that goes on, unless what was called has ended it."""
        key = self.sessions.get((name, confirmed))
        if key is None or not Session.objects.filter(session_key=key).exists():
            browser = Client()
            sign_in(browser, self.users[name], confirmed=confirmed)
            # As by any page: the session is listed, and its organization chosen.
            browser.get("/account")
            key = browser.cookies[settings.SESSION_COOKIE_NAME].value
            self.sessions[name, confirmed] = key
        return key

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
