"""Kept requests that named a template, put together once more by a version of it.

Only what a project keeps can be, by who may read it there; each page read leaves its audit row.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import msgspec

from controlplane.catalog.models import PromptVersion
from controlplane.catalog.selectors import PromptDryRun, body_of, prompt_dry_run
from controlplane.contents.services import ContentFilter, content_page
from controlplane.core.answers import LIMIT_MAX, PageAsk
from controlplane.core.audit.entries import Actor
from controlplane.kernel.contents.kept import KeptContent
from controlplane.kernel.contents.kept import body_of as said_in
from controlplane.kernel.ids import AnyId
from controlplane.kernel.prompts import BadValue, PromptBody
from controlplane.tenants.models import Project

PAGES_MAX = 5
SHOWN_MAX = 10
CHAT = "/v1/chat/completions"


class ReplayedPrompt(msgspec.Struct, frozen=True):
    """One request by both versions; None, with the `refusal`, where the tried one refuses it."""

    id: AnyId
    before: PromptDryRun | None
    after: PromptDryRun | None
    refusal: str = ""


class KeptChat(msgspec.Struct, frozen=True):
    """A chat that named a template: what it filled in, and its whole `body`."""

    id: AnyId
    values: dict[str, Any]
    body: dict[str, Any]


class TemplateReplay(msgspec.Struct, frozen=True):
    """`requests` named the template without a version, of so many that were `read`; `refused` are
    those that the version refuses. Tokens are estimates, of all that both take.
    """

    read: int
    requests: int
    refused: int
    tokens_before: int
    tokens_after: int
    shown: list[ReplayedPrompt]


def template_replay(
    *, actor: Actor, project: Project, version: PromptVersion, live: PromptVersion | None
) -> TemplateReplay:
    """The newest kept requests of a project by a version beside the live one; raises as reading
    what was said does.
    """
    read, found = 0, list[ReplayedPrompt]()
    before, after = body_of(live) if live else None, body_of(version)
    for content in _kept(actor, project):
        read += 1
        values = _values(content, version.template.name)
        if values is not None:
            found.append(_replayed(content, values, before, after))
    both = [one for one in found if one.before and one.after]
    return TemplateReplay(
        read=read,
        requests=len(found),
        refused=sum(one.after is None for one in found),
        tokens_before=sum(one.before.tokens for one in both if one.before),
        tokens_after=sum(one.after.tokens for one in both if one.after),
        # Those that are refused first, then the newest.
        shown=sorted(found, key=lambda one: one.after is not None)[:SHOWN_MAX],
    )


def kept_chats(*, actor: Actor, project: Project, template: str, count_max: int) -> list[KeptChat]:
    """The newest kept chats of a project that name the template without a version; raises as
    reading what was said does.
    """
    found: list[KeptChat] = []
    for content in _kept(actor, project):
        values, body = _values(content, template), said_in(content)
        if values is not None and content.path == CHAT and isinstance(body, dict):
            found.append(KeptChat(content.public_id, values, body))
        if len(found) == count_max:
            break
    return found


def _kept(actor: Actor, project: Project) -> Iterator[KeptContent]:
    ask = PageAsk(limit=LIMIT_MAX)
    for _ in range(PAGES_MAX):
        page = content_page(
            actor=actor, project=project, wanted=ContentFilter(), ask=ask, use="replay"
        )
        yield from page.rows
        if not page.has_more:
            return
        ask = replace(ask, after=UUID(bytes=page.rows[-1].request))


def _values(content: KeptContent, name: str) -> dict[str, Any] | None:
    """What a request filled in, None where it names another template or a version."""
    body = said_in(content)
    named = body.get("prompt") if isinstance(body, dict) else None
    if not isinstance(named, dict) or named.get("id") != name or named.get("version"):
        return None
    return dict(named.get("variables") or {})


def _replayed(
    content: KeptContent, values: dict[str, Any], before: PromptBody | None, after: PromptBody
) -> ReplayedPrompt:
    then = _tried(before, values) if before else None
    now = _tried(after, values)
    return ReplayedPrompt(
        id=content.public_id,
        before=then if isinstance(then, PromptDryRun) else None,
        after=now if isinstance(now, PromptDryRun) else None,
        refusal=now if isinstance(now, str) else "",
    )


def _tried(body: PromptBody, values: dict[str, Any]) -> PromptDryRun | str:
    try:
        return prompt_dry_run(body, values)
    except BadValue as error:
        return str(error)
