"""The life of a template's versions: draft, trial, publication, return; whose they are; bounds."""

from __future__ import annotations

import psycopg
import pytest
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db import DatabaseError, connection

from controlplane.bridge.configuration.snapshot import SnapshotSource
from controlplane.catalog import prompts
from controlplane.catalog.models import PromptTemplate, PromptVersion
from controlplane.catalog.selectors import (
    body_of,
    prompt_dry_run,
    prompt_get,
    prompt_list,
    prompt_versions,
    sample_values,
)
from controlplane.core.database_roles import conninfo_of
from controlplane.core.errors.body import Conflict
from controlplane.core.permissions import Role, organization_scope
from controlplane.gateway.snapshot import PromptRecord
from controlplane.tenants.people.services import membership_set
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.people import Cast, make_cast

BODY = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "{{question}}"},
    ],
    "variables": [{"name": "question"}],
}
OTHER = {"messages": [{"role": "system", "content": "Be long."}]}
BROKEN = {"messages": [{"role": "user", "content": "{{question}}"}]}


@pytest.fixture
def cast(database: str) -> Cast:
    """Alice owns, Bob develops, Charlie is a stranger."""
    return make_cast()


def make(cast: Cast, name: str = "support") -> PromptTemplate:
    return prompts.prompt_create(actor=cast.bob, organization_id=cast.acme.id, name=name)


def published(cast: Cast, template: PromptTemplate, body: object = BODY) -> PromptVersion:
    draft = prompts.PromptVersions(cast.bob, template).draft_create(body)
    return prompts.PromptVersions(cast.bob, draft.template).publish(draft)


def states(cast: Cast, template: PromptTemplate) -> dict[int, str]:
    return {one.version: one.state for one in prompt_versions(actor=cast.bob, template=template)}


def test_draft_publication_and_return(cast: Cast) -> None:
    template = make(cast)
    first = published(cast, template)
    second = published(cast, template, OTHER)
    assert states(cast, template) == {1: "retired", 2: "published"}
    back = prompts.PromptVersions(cast.bob, template).rollback()
    assert (back.version, back.body, back.copy_of_id) == (3, first.body, first.id)
    with pytest.raises(Conflict):
        prompts.PromptVersions(cast.bob, template).rollback()
    ahead = prompts.PromptVersions(cast.bob, template).rollback(to=second)
    assert states(cast, template) == {1: "retired", 2: "retired", 3: "retired", 4: "published"}
    assert ahead.body == second.body
    audited = rows("SELECT action, detail FROM audit_entries WHERE action LIKE 'prompt.%%'")
    assert len(audited) == 7
    assert "brief" not in str(audited)


def test_a_draft_changes_and_nothing_else_does(cast: Cast) -> None:
    template = make(cast)
    draft = prompts.PromptVersions(cast.bob, template).draft_create(BROKEN)
    with pytest.raises(ValidationError) as refused:
        prompts.PromptVersions(cast.bob, draft.template).publish(draft)
    assert list(refused.value.message_dict) == ["body.messages[0].content"]
    changed = prompts.PromptVersions(cast.bob, draft.template).draft_update(draft, BODY, "n")
    with pytest.raises(Conflict):
        prompts.PromptVersions(cast.bob, draft.template).draft_update(draft, OTHER, "")
    prompts.PromptVersions(cast.bob, changed.template).publish(changed)
    with pytest.raises(Conflict):
        prompts.PromptVersions(cast.bob, changed.template).draft_update(changed, OTHER, "")
    with (
        pytest.raises(DatabaseError, match="no draft any more"),
        organization_scope([cast.acme.id]),
        connection.cursor() as cursor,
    ):
        cursor.execute("UPDATE prompt_versions SET body = '{}'")


def test_a_trial_beside_what_is_in_force(cast: Cast) -> None:
    template = make(cast)
    draft = prompts.PromptVersions(cast.bob, template).draft_create(BODY)
    with pytest.raises(Conflict):
        prompts.PromptVersions(cast.bob, draft.template).canary_start(draft, share_permille=100)
    prompts.PromptVersions(cast.bob, draft.template).publish(draft)
    trial = prompts.PromptVersions(cast.bob, template).draft_create(OTHER)
    with pytest.raises(ValidationError):
        prompts.PromptVersions(cast.bob, trial.template).canary_start(trial, share_permille=1000)
    prompts.PromptVersions(cast.bob, trial.template).canary_start(trial, share_permille=100)
    third = prompts.PromptVersions(cast.bob, template).draft_create(OTHER)
    with pytest.raises(Conflict):
        prompts.PromptVersions(cast.bob, third.template).canary_start(third, share_permille=100)
    prompts.PromptVersions(cast.bob, trial.template).canary_stop(trial)
    prompts.PromptVersions(cast.bob, third.template).canary_start(third, share_permille=100)
    prompts.PromptVersions(cast.bob, third.template).publish(third)
    assert states(cast, template) == {1: "retired", 2: "retired", 3: "published"}
    (listed,) = prompt_list(actor=cast.bob, organization_id=cast.acme.id)
    assert (listed.published, listed.canary, listed.newest) == (3, None, 3)


def test_only_members_who_build_may(cast: Cast) -> None:
    template = make(cast)
    with pytest.raises(ObjectDoesNotExist):
        prompt_list(actor=cast.charlie, organization_id=cast.acme.id)
    with pytest.raises(ObjectDoesNotExist):
        prompts.PromptVersions(cast.charlie, template).draft_create(BODY)
    with organization_scope([cast.other.id]):
        assert not PromptTemplate.objects.exists()
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.VIEWER)
    with pytest.raises(PermissionDenied):
        prompts.PromptVersions(cast.bob, template).draft_create(BODY)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"messages": []}, "body.messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "body.messages[0].role"),
        ({**BODY, "more": 1}, "body.more"),
        ({**BODY, "variables": [{"name": "A"}]}, "body.variables[0].name"),
        ({"messages": [{"role": "user", "content": "\0"}]}, "body"),
        ("text", "body"),
    ],
)
def test_what_is_no_body_is_told_at_its_field(cast: Cast, body: object, field: str) -> None:
    template = make(cast)
    with pytest.raises(ValidationError) as refused:
        prompts.PromptVersions(cast.bob, template).draft_create(body)
    assert list(refused.value.message_dict) == [field]


def test_names_are_once_and_projects_are_the_organizations_own(cast: Cast) -> None:
    make(cast)
    with pytest.raises(Conflict):
        make(cast)
    with pytest.raises(ValidationError):
        make(cast, "Not a name")
    with pytest.raises(ValidationError) as refused:
        prompts.prompt_create(
            actor=cast.bob,
            organization_id=cast.acme.id,
            name="mine",
            project_id=cast.other_project.id,
        )
    assert list(refused.value.message_dict) == ["project"]


def test_gateways_keep_so_much_and_no_more(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    template = make(cast)
    published(cast, template)
    monkeypatch.setattr(prompts, "SERVED_BYTES_MAX", 400)
    with pytest.raises(ValidationError) as refused:
        published(cast, template, {"messages": [{"role": "system", "content": "x" * 400}]})
    assert list(refused.value.message_dict) == ["body"]
    assert states(cast, template) == {1: "published", 2: "draft"}


def test_a_dry_run_shows_what_is_sent_and_what_caches(cast: Cast) -> None:
    body = body_of(published(cast, make(cast)))
    tried = prompt_dry_run(body, {"question": "Why?"})
    assert [one.content for one in tried.messages] == ["Be brief.", "Why?"]
    assert (tried.bytes, tried.tokens, tried.stable_bytes, tried.stable_tokens) == (13, 4, 9, 3)
    assert prompt_dry_run(body, sample_values(body)).messages[1].content == "<question>"


@orm
def prepare() -> tuple[str, str]:
    cast = make_cast()
    template = make(cast)
    for _ in range(6):
        published(cast, template)
    trial = prompts.PromptVersions(cast.bob, template).draft_create(OTHER)
    prompts.PromptVersions(cast.bob, trial.template).canary_start(trial, share_permille=20)
    template = prompt_get(actor=cast.bob, organization_id=cast.acme.id, name="support")
    prompts.PromptVersions(cast.bob, template).draft_create(OTHER)
    draft_only = make(cast, "unborn")
    prompts.PromptVersions(cast.bob, draft_only).draft_create(OTHER)
    return cast.acme.id.hex, template.name


async def test_gateways_get_the_newest_published_ones_and_the_trial(database: str) -> None:
    organization, name = await prepare()
    source = SnapshotSource(conninfo_of(settings.DATABASES["gateway"]), salt_secret=b"s" * 32)
    source.start()
    try:
        await source.wait_loaded(5)
        found = source.current.prompts
    finally:
        await source.close()
    assert list(found) == [f"{organization}/{name}"]
    record: PromptRecord = found[f"{organization}/{name}"]
    assert (record.published, record.canary, record.share_permille) == (6, 7, 20)
    assert sorted(record.versions) == [3, 4, 5, 6, 7]


def test_the_gateways_role_reads_no_table_of_them(cast: Cast) -> None:
    with (
        psycopg.connect(conninfo_of(settings.DATABASES["gateway"])) as gateway,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        gateway.execute("SELECT * FROM prompt_versions")
