"""What a project demands of its requests: a form of its own on the page of projects."""

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.http import HttpRequest, QueryDict

from controlplane.core.permissions import Action
from controlplane.kernel.policies.personal import KINDS, Personal
from controlplane.tenants import services
from controlplane.tenants.models import Project
from controlplane.tenants.people.selectors import project_of
from frontend.shared.access import Viewer
from frontend.shared.forms import changes

HERE = "projects"
PERSONAL: dict[Personal, str] = {
    "card": "Payment cards", "email": "E-mail addresses", "iban": "IBANs", "ip": "IP addresses",
    "phone": "Phone numbers", "ssn": "US social security numbers",
}  # fmt: skip
ACTIONS = (
    ("", "Allow"),
    ("mask", "Mask in the prompt, restore in the answer"),
    ("refuse", "Refuse the request"),
)
BOUNDS = {
    "unstreamed_tokens_max": "Max. tokens without streaming",
    "tools_max": "Max. tools per request",
    "calls_max": "Max. tool calls per answer",
}
LINE = ("name", "action", "pattern")
DIGITS_MAX = 10


class PolicyForm(NamedTuple):
    """What the form of a project shows: names of bounds, their words and values; each kind of
    personal data, its words and what is done with it; and the patterns as lines.
    """

    project: Project
    bounds: Sequence[tuple[str, str, str]]
    personal: Sequence[tuple[str, str, str]]
    patterns: str


def policy_form(project: Project) -> PolicyForm:
    actions, own = (project.policies.get(name) for name in ("personal", "patterns"))
    lines = (f"{each['name']} {each.get('action', 'mask')} {each['pattern']}" for each in own or ())
    personal = [(kind, words, (actions or {}).get(kind, "")) for kind, words in PERSONAL.items()]
    bounds = [(name, words, project.policies.get(name, "")) for name, words in BOUNDS.items()]
    return PolicyForm(project, bounds, personal, "\n".join(lines))


@changes("projects/<proj:project_id>/policies", Action.PROJECT_UPDATE, HERE, confirmed=True)
def project_demand(request: HttpRequest, viewer: Viewer, project_id: uuid.UUID) -> str:
    found = project_of(**viewer.whose, project_id=project_id)
    wanted = _policies(request.POST)
    services.project_update(actor=viewer.user, project=found, policies=wanted)
    return f"The policies of “{found.name}” are saved. Gateways apply them within 2 s."


def _policies(form: QueryDict) -> dict[str, Any]:
    """As the form says; raises ValidationError by field."""
    wanted: dict[str, Any] = {"require_max_tokens": "require_max_tokens" in form}
    for name in BOUNDS:
        if text := form.get(name, "").strip():
            if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
                raise ValidationError({name: "Must be a whole number."})
            wanted[name] = int(text)
    chosen = {kind: form.get(f"personal_{kind}", "") for kind in KINDS}
    wanted["personal"] = {kind: action for kind, action in chosen.items() if action}
    wanted["patterns"] = []
    for number, line in enumerate(filter(str.strip, form.get("patterns", "").splitlines())):
        words = line.strip().split(maxsplit=2)
        if len(words) != len(LINE):
            told = "Enter a name, mask or refuse, and a pattern, such as: staff mask ACME-[0-9]{6}"
            raise ValidationError({f"patterns[{number}]": told})
        wanted["patterns"].append(dict(zip(LINE, words, strict=True)))
    return wanted
