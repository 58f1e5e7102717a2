"""What was said, for tests of keeping it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from controlplane.contents.sealing import ContentKey
from controlplane.kernel.clock import wall_us
from controlplane.kernel.contents.kept import KeptCall, KeptChoice, KeptContent, terms_of
from controlplane.kernel.ids import new_request_id
from controlplane.tenants.models import Project
from tests.support.money import ALICE_KEY, ORG_A, PROJECT_A, rows

ANSWER = KeptChoice(
    index=0,
    text="It is cold in Oslo.",
    reasoning="They ask of weather.",
    calls=(KeptCall(id="call_1", name="weather", arguments='{"city":"Oslo"}'),),
    finish="tool_calls",
)


def make_content(**changes: Any) -> KeptContent:
    """A question of weather and its answer, with some fields changed."""
    fields: dict[str, Any] = {
        "request": new_request_id(),
        "organization": ORG_A.hex,
        "project": PROJECT_A.hex,
        "key": ALICE_KEY.hex,
        "model": "sluice-5m",
        "path": "/v1/chat/completions",
        "started_us": wall_us(),
        "end_user": "user-7",
        "body": b'{"messages":[{"role":"user","content":"Weather in Oslo?"}]}',
        "choices": (ANSWER,),
    }
    return KeptContent(**{**fields, **changes})


def keep_row(project: Project, request: UUID, **changes: Any) -> KeptContent:
    """What was said in a request of a project, as its gateway would have kept it."""
    assert project.content_key is not None
    key = ContentKey(bytes(project.content_key), project.id.hex)
    owners = {"organization": project.organization_id.hex, "project": project.id.hex}
    content = make_content(request=request.bytes, **{**owners, **changes})
    rows(
        "INSERT INTO kept_contents (request, organization, project, terms, sealed)"
        " VALUES (%s, %s, %s, %s, %s)",
        request,
        project.organization_id,
        project.id,
        key.hashes(terms_of(content)),
        key.seal(content),
    )
    return content
