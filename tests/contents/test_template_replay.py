"""Kept requests that named a template, once more by a draft of it."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from controlplane.catalog.models import PromptVersion
from controlplane.catalog.prompts import PromptVersions, prompt_create
from controlplane.contents.replay import kept_chats, template_replay
from controlplane.contents.services import Keeping, contents_configure
from controlplane.core.models import AuditEntry
from controlplane.core.permissions import organization_scope
from controlplane.kernel.ids import new_request_id
from controlplane.tenants.models import Project
from tests.support.people import Cast, make_cast, signed_in
from tests.support.said import keep_row

QUESTION = {"name": "question", "chars_max": 20}


def body(text: str, *variables: dict[str, Any]) -> dict[str, Any]:
    said = {"role": "user", "content": text}
    return {"messages": [said], "variables": list(variables)}


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


@pytest.fixture
def project(cast: Cast) -> Project:
    """It keeps what was said, and four requests of which two name `support`."""
    kept = contents_configure(actor=cast.alice, project=cast.project, keeping=Keeping(7, ["owner"]))
    for prompt in (
        {"id": "support", "variables": {"question": "When?"}},
        {"id": "support", "variables": {"question": "Where, and for how long?"[:19]}},
        {"id": "support", "version": 1, "variables": {"question": "Pinned?"}},
        {"id": "other"},
        None,
    ):
        said = json.dumps({"prompt": prompt} if prompt else {"messages": []}).encode()
        keep_row(kept, uuid.UUID(bytes=new_request_id()), body=said)
    return kept


@pytest.fixture
def versions(cast: Cast) -> list[PromptVersion]:
    """The live one, and a draft that takes fewer characters."""
    template = prompt_create(actor=cast.alice, organization_id=cast.acme.id, name="support")
    life = PromptVersions(cast.alice, template)
    live = life.publish(life.draft_create(body("Q: {{question}}", QUESTION)))
    short = body("Answer this in one word: {{question}}", {**QUESTION, "chars_max": 10})
    return [live, life.draft_create(short)]


def test_the_newest_kept_chats_of_a_template_are_found(cast: Cast, project: Project) -> None:
    def found(count: int) -> list[Any]:
        asked: dict[str, Any] = {"template": "support", "count_max": count}
        return kept_chats(actor=cast.alice, project=project, **asked)

    assert [one.values for one in found(5)] == [
        {"question": "Where, and for how "},
        {"question": "When?"},
    ]
    assert [one.body["prompt"]["id"] for one in found(1)] == ["support"]
    with organization_scope([cast.acme.id]):
        assert AuditEntry.objects.filter(action__startswith="content").exists()
    with pytest.raises(PermissionDenied):
        kept_chats(actor=cast.bob, project=project, template="support", count_max=1)


def test_both_versions_are_put_together_of_what_was_said(
    cast: Cast, project: Project, versions: list[PromptVersion]
) -> None:
    live, draft = versions
    found = template_replay(actor=cast.alice, project=project, version=draft, live=live)
    assert (found.read, found.requests, found.refused) == (5, 2, 1)
    refused, taken = found.shown
    assert refused.after is None and "at most 10" in refused.refusal
    assert taken.before is not None and taken.after is not None
    assert taken.before.messages[0].content == "Q: When?"
    assert taken.after.messages[0].content == "Answer this in one word: When?"
    assert (found.tokens_before, found.tokens_after) == (taken.before.tokens, taken.after.tokens)
    with organization_scope([cast.acme.id]):
        (noted,) = AuditEntry.objects.filter(action="content.read")
    assert noted.detail["use"] == "replay" and "When?" not in json.dumps(noted.detail)


def test_only_readers_replay(cast: Cast, project: Project, versions: list[PromptVersion]) -> None:
    with pytest.raises(PermissionDenied):
        template_replay(actor=cast.bob, project=project, version=versions[1], live=None)


def test_the_page_replays_for_readers_and_shows_the_live_version_beside(
    cast: Cast, project: Project, versions: list[PromptVersion]
) -> None:
    alice, bob = signed_in(cast.alice), signed_in(cast.bob)
    path = "/templates/support/2"
    assert "Replay of stored requests" in alice.get(path).content.decode()
    assert "Replay of stored requests" not in bob.get(path).content.decode()
    shown = alice.post(f"{path}/replay", {"project": cast.project.id.hex}).content.decode()
    assert "this version would refuse 1" in " ".join(shown.split())
    assert "Answer this in one word: When?" in shown
    tried = alice.post(f"{path}/try", {"value-question": "Why?"}).content.decode()
    assert "Q: Why?" in tried and "Answer this in one word: Why?" in tried
