"""C1: the recipes of docs/single-sign-on.md, each with a provider that behaves as that one does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from pytest import MonkeyPatch

from controlplane.core.permissions import Role
from controlplane.tenants.access import role_of
from controlplane.tenants.models import User
from tests.frontend.people.test_provider import begin, come_back, signed_in_as
from tests.support.money import rows
from tests.support.people import Cast, make_cast
from tests.support.provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    IN_BODY,
    IN_HEADER,
    METHODS,
    Provider,
    oidc_provider,
    provider_running,
)

DOCS = Path(__file__).parents[2] / "docs" / "single-sign-on.md"
RECIPES = {
    found["id"]: found
    for found in map(json.loads, re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL))
}
ORGANIZATION = "org_0123456789abcdef0123456789abcdef"
TENANT = "11111111-2222-3333-4444-555555555555"
ENTRA_GROUP = "0760b6cf-170e-4a14-91b3-4b78e0739963"
DORA = "dora@example.org"


@dataclass
class Behaviour:
    """How a provider answers: its issuer's path, and claims in the token and at userinfo.

    Claims that are None are left out. `left` are those of someone who is in the group no more.
    """

    path: str
    methods: list[str]
    token: dict[str, Any]
    userinfo: dict[str, Any] = field(default_factory=dict)
    left: dict[str, Any] | None = field(default_factory=dict)


BEHAVIOURS = {
    "entra": Behaviour(
        f"/{TENANT}/v2.0",
        [IN_BODY, "private_key_jwt", IN_HEADER],
        {
            "ver": "2.0", "tid": TENANT, "oid": "o", "email": None, "email_verified": None,
            "preferred_username": "Dora@example.org", "groups": ["f00d", ENTRA_GROUP],
        },
        left={"groups": None},
    ),
    "google": Behaviour(
        "", [IN_BODY, IN_HEADER], {"hd": "example.org", "azp": CLIENT_ID}, left=None
    ),
    "okta": Behaviour(
        "",
        [IN_HEADER, IN_BODY, "client_secret_jwt", "private_key_jwt", "none"],
        {"ver": 1, "idp": "00o", "email": None, "email_verified": None},
        {
            "sub": "dora-7", "email": DORA, "email_verified": True,
            "groups": ["Everyone", "sluice-admins"],
        },
        left={"groups": ["Everyone"]},
    ),
    "keycloak": Behaviour(
        "/realms/acme",
        ["private_key_jwt", IN_HEADER, IN_BODY, "tls_client_auth"],
        {"azp": "sluice", "typ": "ID", "groups": ["/everyone", "/platform/admins"]},
        # Of the same name, and not the same.
        left={"groups": ["/other/admins", "admins", "platform/admins"]},
    ),
    "authentik": Behaviour(
        "/application/o/sluice/",
        [IN_BODY, IN_HEADER],
        {"email_verified": False, "groups": ["authentik Users", "sluice admins"]},
        left={"groups": []},
    ),
}  # fmt: skip


@dataclass
class Setup:
    """One recipe as it is set, and the provider behind it."""

    provider: Provider
    behaviour: Behaviour
    recipe: dict[str, Any]
    organization: str

    @property
    def here(self) -> str:
        """Where its button leads."""
        return f"/sign-in/provider/{self.recipe['id']}"

    def set(self, monkeypatch: MonkeyPatch, **changes: Any) -> None:
        """The recipe of the documentation, but for whose it is."""
        text = json.dumps(self.recipe | changes).replace(ORGANIZATION, self.organization)
        said = {**json.loads(text), "client_secret": CLIENT_SECRET}
        del said["client_secret_file"], said["issuer"]
        found = oidc_provider(self.provider.issuer, **said)
        monkeypatch.setattr(settings, "OIDC_PROVIDERS", (found,))

    def sign_in(self, **changes: Any) -> Client:
        """Go there and come back as Dora, with some claims changed."""
        client, provider, told = Client(), self.provider, self.behaviour
        provider.userinfo = {**told.userinfo, **changes} if told.userinfo else {}
        claims = told.token if told.userinfo else {**told.token, **changes}
        asked = begin(client, here=self.here)
        come_back(client, provider, asked, here=self.here, **claims)
        return client


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


@pytest.fixture(params=BEHAVIOURS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def setup(cast: Cast, name: str, monkeypatch: MonkeyPatch) -> Iterator[Setup]:
    behaviour = BEHAVIOURS[name]
    with provider_running(behaviour.path) as running:
        running.says[METHODS] = behaviour.methods
        made = Setup(running, behaviour, RECIPES[name], f"org_{cast.acme.id.hex}")
        made.set(monkeypatch)
        # Discovery says where userinfo is from the first.
        running.userinfo = behaviour.userinfo
        yield made


def only(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", names)


def dora_is(cast: Cast) -> Role | None:
    user = User.objects.filter(email=DORA).first()
    return role_of(user, cast.acme.id) if user else None


def test_every_recipe_has_a_provider_that_behaves_so() -> None:
    assert RECIPES.keys() == BEHAVIOURS.keys()


def test_somebody_new_comes_in_with_the_role_and_loses_it_with_the_group(
    cast: Cast, setup: Setup, monkeypatch: MonkeyPatch
) -> None:
    assert signed_in_as(setup.sign_in()) == DORA
    given = Role(setup.recipe["roles"][0]["role"])
    assert dora_is(cast) is given
    setup.set(monkeypatch, roles=[{**setup.recipe["roles"][0], "role": "finance"}])
    setup.sign_in()
    assert dora_is(cast) is Role.FINANCE
    if setup.behaviour.left is None:
        setup.set(monkeypatch, roles=[])
    assert signed_in_as(setup.sign_in(**(setup.behaviour.left or {}))) == DORA
    assert dora_is(cast) is None
    told = rows(
        "SELECT action, actor_label, detail->>'role', detail->>'before' FROM audit_entries"
        " WHERE actor_label = 'single sign-on' ORDER BY id"
    )
    assert told == [
        ("membership.set", "single sign-on", given.value, None),
        ("membership.set", "single sign-on", "finance", given.value),
        ("membership.end", "single sign-on", "finance", None),
    ]


def test_a_stranger_with_no_role_stays_outside(setup: Setup, monkeypatch: MonkeyPatch) -> None:
    setup.set(monkeypatch, roles=[])
    assert signed_in_as(setup.sign_in()) is None
    assert not User.objects.filter(email=DORA).exists()


@only("entra")
def test_a_guest_of_entra_stays_outside(setup: Setup) -> None:
    for address in ("dora@elsewhere.org", "dora_example.org#EXT#@acme.onmicrosoft.com", None):
        assert signed_in_as(setup.sign_in(preferred_username=address)) is None


@only("entra")
def test_too_many_groups_are_told_and_change_nothing(cast: Cast, setup: Setup) -> None:
    setup.sign_in()
    overage = {"groups": None, "_claim_names": {"groups": "src1"}}
    source = {"endpoint": "https://graph.microsoft.com/v1.0/users/o/getMemberObjects"}
    client = setup.sign_in(**overage, _claim_sources={"src1": source})
    assert signed_in_as(client) is None and dora_is(cast) is Role.ADMIN
    assert "more groups than the provider puts into its token" in (
        client.get("/sign-in").content.decode()
    )


@only("google")
def test_an_account_of_no_workspace_of_google_stays_outside(setup: Setup) -> None:
    """Its address is of the domain and verified, and the account is not of the domain."""
    for domain in (None, "elsewhere.org"):
        assert signed_in_as(setup.sign_in(hd=domain)) is None


@only("okta")
def test_what_userinfo_tells_of_another_subject_is_refused(setup: Setup) -> None:
    assert signed_in_as(setup.sign_in(sub="eve-1")) is None


@only("okta")
def test_a_custom_server_of_okta_puts_groups_into_the_token(cast: Cast, setup: Setup) -> None:
    setup.behaviour = Behaviour("", [], {"groups": ["sluice-admins"], "ver": 1})
    assert signed_in_as(setup.sign_in()) == DORA
    assert dora_is(cast) is Role.ADMIN


@only("keycloak")
def test_realm_roles_of_keycloak_count_as_groups(
    cast: Cast, setup: Setup, monkeypatch: MonkeyPatch
) -> None:
    rule = {**setup.recipe["roles"][0], "group": "sluice-developer", "role": "developer"}
    setup.set(monkeypatch, groups_claim="realm_access.roles", roles=[rule])
    setup.sign_in(realm_access={"roles": ["offline_access", "sluice-developer"]})
    assert dora_is(cast) is Role.DEVELOPER
    without: list[dict[str, Any] | None] = [{"roles": []}, {}, None]
    for none in without:
        assert signed_in_as(setup.sign_in(realm_access=none)) == DORA
        assert dora_is(cast) is None


@only("keycloak", "okta")
def test_groups_that_are_no_list_are_refused(cast: Cast, setup: Setup) -> None:
    setup.sign_in()
    assert signed_in_as(setup.sign_in(groups={"a": 1})) is None
    assert dora_is(cast) is Role.ADMIN


@only("authentik", "keycloak")
def test_an_address_that_is_not_verified_is_nobodys(cast: Cast, setup: Setup) -> None:
    changed = {"email": "dora@elsewhere.org", "email_verified": False}
    assert signed_in_as(setup.sign_in(**changed)) is None
    assert not User.objects.filter(email__startswith="dora").exists()
