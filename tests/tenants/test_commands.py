"""The operator's commands on tenants: what they set, what they print, how they refuse."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.models import AuditEntry
from controlplane.core.permissions import organization_scope
from controlplane.tenants.models import Project
from controlplane.tenants.selectors import project_named
from controlplane.tenants.services import organization_create, project_create, project_update
from controlplane.tenants.sign_in.accounts import setup_link_user, user_find
from tests.support.people import Cast, make_cast

pytestmark = pytest.mark.usefixtures("database")


def project_set(organization: str, project: str, safety: str) -> None:
    names = {"organization": organization, "project": project, "safety": safety}
    call_command("project_set", **names, stdout=StringIO())


def stored(cast: Cast) -> Project:
    found = project_named(cast.acme, name="web")
    assert found is not None
    return found


def test_the_safety_layer_is_set_and_content_logging_stays() -> None:
    cast = make_cast()
    project_update(
        actor=OPERATOR, project=cast.project, safety_mode="off", allow_content_logging=True
    )
    for mode in ("flag", "block", "off"):
        project_set("Acme", "web", mode)
        assert (stored(cast).safety_mode, stored(cast).allow_content_logging) == (mode, True)
    with organization_scope([cast.acme.id]):
        last = AuditEntry.objects.filter(action="project.update").latest("id")
    assert (last.actor_label, last.subject_id) == ("operator", cast.project.id)


def test_the_share_is_set_without_touching_the_safety_layer() -> None:
    cast = make_cast()
    project_set("Acme", "web", "flag")
    call_command("project_set", "--organization=Acme", "--project=web", "--weight=5")
    assert (stored(cast).weight, stored(cast).safety_mode) == (5, "flag")
    for wrong, named in ((["--weight=101"], "--weight"), ([], "--safety, --content and --weight")):
        with pytest.raises(CommandError, match=named):
            call_command("project_set", "--organization=Acme", "--project=web", *wrong)
    assert stored(cast).weight == 5


def test_keeping_text_is_set_without_touching_the_safety_layer() -> None:
    cast = make_cast()
    project_set("Acme", "web", "block")
    for word, kept in (("on", True), ("off", False)):
        call_command("project_set", "--organization=Acme", "--project=web", f"--content={word}")
        assert (stored(cast).allow_content_logging, stored(cast).safety_mode) == (kept, "block")


@pytest.mark.parametrize(
    ("organization", "project", "safety", "named"),
    [
        ("Nobody", "web", "flag", "--organization"),
        ("Acme", "secret", "flag", "--project"),
        ("Acme", "web", "loud", "--safety"),
    ],
)
def test_a_wrong_argument_is_named(
    organization: str, project: str, safety: str, named: str
) -> None:
    cast = make_cast()
    with pytest.raises(CommandError, match=named):
        call_command(
            "project_set",
            f"--organization={organization}",
            f"--project={project}",
            f"--safety={safety}",
        )
    assert stored(cast).safety_mode == "off"


def test_two_organizations_of_one_name_are_told_apart_by_their_projects() -> None:
    cast = make_cast()
    twin = organization_create(actor=OPERATOR, name="Acme", owner=cast.charlie)
    project_set("Acme", "web", "flag")
    project_create(actor=OPERATOR, organization=twin, name="web")
    with pytest.raises(CommandError, match="--organization"):
        project_set("Acme", "web", "block")
    assert stored(cast).safety_mode == "flag"


def setup_link(*arguments: str) -> str:
    out, error = StringIO(), StringIO()
    call_command("setup_link", *arguments, stdout=out, stderr=error)
    assert out.getvalue().startswith("/setup/") and "expires in one day" in error.getvalue()
    return out.getvalue().strip().removeprefix("/setup/")


def test_a_link_for_an_account_ends_the_one_before() -> None:
    cast = make_cast()
    first, second = setup_link("bob@example.org"), setup_link("BOB@example.org")
    assert setup_link_user(token=first) is None
    assert setup_link_user(token=second) == cast.bob


def test_the_first_admin_is_made_on_request_only() -> None:
    with pytest.raises(CommandError, match="EMAIL.*--create"):
        setup_link("root@example.org")
    token = setup_link("root@example.org", "--create")
    admin = user_find(email="root@example.org")
    assert admin is not None and admin.is_staff
    assert setup_link_user(token=token) == admin
    for wrong in ("root@example.org", "no address"):
        with pytest.raises(CommandError, match="EMAIL"):
            setup_link(wrong, "--create")
