"""Prompt templates, and what is special about their versions: bounds, and no text in the audit.

All steps of one organization take one lock, so that its bounds hold.
"""

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import msgspec
from django.core.exceptions import ValidationError
from django.db.models import Q
from msgspec import structs

from controlplane.catalog.models import PromptTemplate, PromptVersion
from controlplane.catalog.selectors import body_of, prompt_problems, served_bytes
from controlplane.core.api.shapes import read_shape
from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.errors.body import Conflict
from controlplane.core.permissions import Action
from controlplane.core.queries import rows
from controlplane.core.versions.models import State
from controlplane.core.versions.selectors import in_force, on_trial
from controlplane.core.versions.services import Versions
from controlplane.kernel.prompts import PARTIAL, PromptBody, PromptMessage
from controlplane.tenants.access import permitted
from controlplane.tenants.models import Project

TEMPLATES_MAX = 100
VERSIONS_MAX = 1_000
# Gateways keep this much of one organization's templates in memory, and read it at every change.
SERVED_BYTES_MAX = 512 * 1024


def prompt_create(
    *, actor: Actor, organization_id: uuid.UUID, name: str, project_id: uuid.UUID | None = None
) -> PromptTemplate:
    """A template without versions; with a project only its keys may name it."""
    with _alone(actor, organization_id):
        rows = PromptTemplate.objects.filter(organization_id=organization_id)
        if rows.count() >= TEMPLATES_MAX:
            raise ValidationError({"name": f"The limit of {TEMPLATES_MAX} templates is reached."})
        if rows.filter(name=name).exists():
            raise Conflict({"name": f"A template named {name!r} already exists."})
        made = PromptTemplate(organization_id=organization_id, name=name, project_id=project_id)
        if project_id is not None and not Project.objects.filter(id=project_id).exists():
            raise ValidationError({"project": "Project not found."})
        made.full_clean()
        made.save(force_insert=True)
        audit_record(actor, "prompt.create", subject=made, detail={"name": name})
    return made


class PromptVersions(Versions[PromptVersion]):
    kind, content, versions_max = "prompt", "body", VERSIONS_MAX

    def __init__(self, actor: Actor, template: PromptTemplate) -> None:
        rows = PromptVersion.objects.filter(template=template).select_related("template")
        super().__init__(actor, rows, template.organization_id)
        self.template = template

    def alone(self) -> AbstractContextManager[None]:
        return _alone(self.actor, self.template.organization_id)

    def new(self) -> PromptVersion:
        return PromptVersion(organization_id=self.template.organization_id, template=self.template)

    def read(self, content: object) -> object:
        body = self._put_in(read_shape(content, PromptBody, field="body"))
        if not body.messages and body.tool is None:
            raise ValidationError({"body.messages": "At least one message is required."})
        return msgspec.json.decode(msgspec.json.encode(body))

    def errors(self, version: PromptVersion) -> Iterator[tuple[str, str]]:
        for problem in prompt_problems(version):
            if not problem.warning:
                yield f"body.{problem.field}", problem.message

    def _put_in(self, body: PromptBody) -> PromptBody:
        """The body with the texts of templates that its messages name in them.

        What is named is a published version, whose own texts are in it already: so nothing can
        name itself, and what was published never changes with another template.
        """
        typed = body.source or body.messages
        source = [message for message in typed if PARTIAL.search(message.content)]
        if not source:
            return structs.replace(body, messages=typed, source=())
        found = [self._whole(place, message) for place, message in enumerate(typed)]
        variables = {one.name: one for _, _, bodies in found for b in bodies for one in b.variables}
        variables |= {one.name: one for one in body.variables}
        return structs.replace(
            body,
            messages=tuple(message for message, _, _ in found),
            source=tuple(message for _, message, _ in found),
            variables=tuple(variables.values()),
        )

    def _whole(
        self, place: int, message: PromptMessage
    ) -> tuple[PromptMessage, PromptMessage, list[PromptBody]]:
        """A message with the texts that it names, and as it is written, each at its version."""
        bodies: dict[str, PromptBody] = {}
        pinned: dict[str, str] = {}
        for named in PARTIAL.finditer(message.content):
            version = self._named(named["name"], named["version"], f"body.source[{place}].content")
            bodies[named[0]] = body_of(version)
            pinned[named[0]] = f"{{{{> {named['name']}:{version.version}}}}}"

        def text(named: str) -> str:
            return "\n\n".join(each.content for each in bodies[named].messages)

        whole = PARTIAL.sub(lambda found: text(found[0]), message.content)
        written = PARTIAL.sub(lambda found: pinned[found[0]], message.content)
        return (
            PromptMessage(message.role, whole),
            PromptMessage(message.role, written),
            list(bodies.values()),
        )

    def _named(self, name: str, number: str | None, field: str) -> PromptVersion:
        rows = PromptVersion.objects.filter(template__name=name).exclude(published_at=None)
        rows = rows.filter(organization_id=self.template.organization_id)
        visible = Q(template__project=None) | Q(template__project=self.template.project_id)
        wanted = Q(version=int(number)) if number else Q(state=State.PUBLISHED)
        found = rows.filter(visible, wanted).exclude(template=self.template).first()
        if found is None or not found.body.get("messages"):
            version = f"version {number}" if number else "live version"
            raise ValidationError({field: f"There is no {version} of another template {name!r}."})
        return found

    def ready(self, version: PromptVersion, *, trial: bool = False) -> PromptVersion:
        now = self.now(version, State.DRAFT, State.CANARY)
        others = self.rows.exclude(id=now.id)
        if trial and in_force(others) is None:
            raise Conflict({"state": "No version is live yet: publish one first."})
        if trial and on_trial(others) is not None:
            raise Conflict({"state": "Another version is in canary: publish or stop it first."})
        return now

    def facts(self, version: PromptVersion) -> Facts:
        """Numbers only: prompts are never in the audit."""
        return {"name": self.template.name, "version": version.version}

    def check_room(self) -> None:
        total = served_bytes(self.template.organization_id)
        if total > SERVED_BYTES_MAX:
            told = (
                f"The organization's templates would take {total} bytes on gateways; the limit is "
                f"{SERVED_BYTES_MAX}."
            )
            raise ValidationError({"body": told})


@contextmanager
def _alone(actor: Actor, organization_id: uuid.UUID) -> Iterator[None]:
    with permitted(actor, Action.TEMPLATE_MANAGE, organization_id):
        lock = "SELECT pg_advisory_xact_lock(hashtext('prompts'), hashtext(%s))"
        rows(lock, [str(organization_id)])
        yield
