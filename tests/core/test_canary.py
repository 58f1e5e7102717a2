"""Secrets sent to every route, in the right place and in wrong ones, are kept nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from controlplane.catalog.prompts import PromptVersions, prompt_create
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import PLATFORM_ACTIONS, Role
from controlplane.tenants.adminkeys.services import AdminKeyDraft, adminkey_create
from controlplane.tenants.people.services import invitation_create
from controlplane.tenants.sign_in.accounts import setup_link_create
from tests.core.callers import ANONYMOUS, STAFF
from tests.core.route import Route
from tests.core.routes import ROUTES
from tests.core.samples import make_things
from tests.core.step_up import UNSAFE
from tests.core.test_authorization_matrix import API, address
from tests.support.money import rows
from tests.support.people import make_cast

PASSWORD = "canary-horse-battery-staple-47"
CODE = "canary-918273"
# What forms of people and machines call what must not be kept.
FIELDS = ("password", "again", "current", "code", "token", "secret", "credential", "key")
# Part of a secret is one too.
TAIL_CHARS = 40


def kept() -> str:
    """Every row of every table."""
    tables = rows(
        "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p')"
        " AND relnamespace = 'public'::regnamespace"
    )
    return "".join(str(rows(f"SELECT t::text FROM {name} t")) for (name,) in tables)


def ask(client: Client, route: Route, path: str, secret: str) -> int:
    """One request full of secrets; it may do what it does, but must not break."""
    more: dict[str, Any] = {}
    if route.method in UNSAFE:
        more["data"] = {**dict.fromkeys(FIELDS, PASSWORD), "code": CODE, "username": "canary@x.org"}
        more["data"]["token"] = secret
    if route.path.startswith(API):
        more["content_type"] = "application/json"
    headers = {"user-agent": f"tool {secret}", "x-api-key": secret, "idempotency-key": secret}
    call = getattr(client, route.method.lower())
    answer = call(f"{path}{'&' if '?' in path else '?'}api_key={secret}", headers=headers, **more)
    if answer.streaming:
        b"".join(answer)
    return int(answer.status_code)


def test_no_secret_is_kept_by_any_route(
    database: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    things = make_things()
    link = setup_link_create(actor=OPERATOR, user=things.cast.bob)
    _, invitation = invitation_create(
        actor=things.cast.alice, organization=things.cast.acme, email="i@x.org", role=Role.VIEWER
    )
    admin = adminkey_create(
        actor=things.cast.alice,
        organization_id=things.cast.acme.id,
        draft=AdminKeyDraft("canary", ("key.view",)),
    )
    secrets = (things.key.secret, admin.secret, settings.OPERATOR_TOKEN, link, invitation)
    broken = set()
    for place, route in enumerate(ROUTES):
        secret = secrets[place % len(secrets)]
        for name in (STAFF if route.needs in PLATFORM_ACTIONS else "owner", ANONYMOUS):
            client = things.callers.client(name)
            if ask(client, route, address(route, things), secret) >= 500:
                broken.add(str(route))
        if not route.path.startswith(API):
            continue
        wrong = Client(raise_request_exception=False, headers={"authorization": f"Bearer {secret}"})
        if ask(wrong, route, address(route, things), secret) >= 500:
            broken.add(str(route))
    text = kept() + caplog.text + "".join(capfd.readouterr())
    found = {secret[:12] for secret in secrets if secret[-TAIL_CHARS:] in text}
    found |= {one for one in (PASSWORD, CODE) if one in text}
    assert (found, broken) == (set(), set())


def test_text_of_templates_is_not_in_the_audit(database: str) -> None:
    cast = make_cast()
    alice = cast.alice
    template = prompt_create(actor=alice, organization_id=cast.acme.id, name="canary")
    text = "You are the canary of this mine."
    draft = {"messages": [{"role": "system", "content": text}]}
    PromptVersions(alice, template).draft_create(draft)
    assert text in kept()
    assert text not in str(rows("SELECT e::text FROM audit_entries e"))
