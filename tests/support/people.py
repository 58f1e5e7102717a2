"""The cast: Alice owns an organization, Bob develops in it, Charlie is a stranger to both."""

from dataclasses import dataclass

from django.test import Client

from controlplane.composed.demo import ADMIN_EMAIL
from controlplane.core.api.stepup import session_confirm
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.tenants.models import Organization, Project, User
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.services import organization_create, project_create
from controlplane.tenants.sign_in.accounts import (
    setup_link_consume,
    setup_link_create,
    user_create,
    user_find,
)


@dataclass(frozen=True)
class Cast:
    """Three users, two organizations with a project each, and Stella, who runs the installation."""

    alice: User
    bob: User
    charlie: User
    stella: User
    acme: Organization
    other: Organization
    project: Project
    other_project: Project


def make_cast() -> Cast:
    """Needs the `database` fixture."""
    alice, bob, charlie, stella = (
        user_create(actor=OPERATOR, email=f"{name}@example.org", is_staff=name == "stella")
        for name in ("alice", "bob", "charlie", "stella")
    )
    acme = organization_create(actor=OPERATOR, name="Acme", owner=alice)
    other = organization_create(actor=OPERATOR, name="Other", owner=charlie)
    membership_set(actor=alice, organization=acme, user=bob, role=Role.DEVELOPER)
    return Cast(
        alice=alice,
        bob=bob,
        charlie=charlie,
        stella=stella,
        acme=acme,
        other=other,
        project=project_create(actor=alice, organization=acme, name="web"),
        other_project=project_create(actor=charlie, organization=other, name="secret"),
    )


def make_steve() -> User:
    """A second person of staff, whom the cast does without."""
    return user_create(actor=OPERATOR, email="steve@example.org", is_staff=True)


def give_password(user: User, password: str) -> None:
    """Through a setup link, as people get theirs."""
    setup_link_consume(token=setup_link_create(actor=OPERATOR, user=user), password=password)
    user.refresh_from_db()


def sign_in(client: Client, user: User) -> None:
    """A session as it is right after a full sign-in."""
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    session = client.session
    session_confirm(session)
    session.save()


def signed_in(user: User) -> Client:
    """A browser in which this user has just signed in."""
    client = Client()
    sign_in(client, user)
    return client


def demo_admin() -> Client:
    """A browser of the admin that `bootstrap_demo` has made."""
    admin = user_find(email=ADMIN_EMAIL)
    assert admin is not None
    return signed_in(admin)
