"""Deployments: hosts with what they have, and models that run on them; for staff."""

from dataclasses import dataclass
from typing import Any

import msgspec
from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from controlplane.catalog.selectors import model_list
from controlplane.core.permissions import Action
from controlplane.hosts import services
from controlplane.hosts.fit import gib
from controlplane.hosts.models import Deployment, Host
from controlplane.hosts.selectors import (
    DeploymentView,
    ReplicaView,
    deployment_list,
    host_get,
    host_list,
    is_fresh,
)
from frontend.shared import formats
from frontend.shared.access import Viewer, moving, page, show
from frontend.shared.addresses import page_url
from frontend.shared.forms import JsonField, changes, cleaned, says_wrong
from frontend.shared.snippets import agent_command
from frontend.shared.stepup import secret_page
from inference.contract.hosts import ENGINE_ARGUMENTS, SOURCE_CHARS_MAX, GpuState, Inventory

POLL_MS = 2_000
TEXT_CHARS_MAX = 5_000
SOURCES = (("hub", "Hub repository"), ("folder", "Folder on the hosts"))
TONES = {
    "serving": "ok", "starting": "warn", "upgrading": "warn", "refused": "bad",
    "removing": "off", "draining": "off", "stopped": "off",
}  # fmt: skip


class ChangeForm(forms.Form):
    """What may change while a deployment runs; the service checks everything again."""

    replicas = forms.IntegerField()
    revision = forms.CharField(max_length=100, required=False)
    window = forms.IntegerField()
    sequences = forms.IntegerField()
    arguments = forms.CharField(max_length=TEXT_CHARS_MAX, required=False)
    schedule = JsonField(max_length=TEXT_CHARS_MAX, required=False)

    def clean_arguments(self) -> dict[str, str]:
        """Names and values, as `name=value` in each line."""
        lines = self.cleaned_data["arguments"].split()
        return {name: value for name, _, value in (line.partition("=") for line in lines)}


class DeploymentForm(ChangeForm):
    """A new deployment."""

    name = forms.CharField()
    model = forms.CharField()
    engine = forms.CharField()
    source_kind = forms.CharField()
    source_name = forms.CharField(max_length=SOURCE_CHARS_MAX)


@dataclass(frozen=True)
class HostRow:
    """A host's line; what it does not know is a dash."""

    host: Host
    fresh: bool

    @property
    def status(self) -> tuple[str, str]:
        if self.host.enrolled_at is None:
            return "off", "waiting for its agent"
        if self.host.removed_at:
            return "off", "draining"
        return ("ok", "reports") if self.fresh else ("bad", "silent")

    @property
    def told(self) -> Inventory:
        return msgspec.convert(self.host.inventory, Inventory)

    @property
    def processor(self) -> str:
        cores, load = self.told.cores, self.told.load
        return formats.MISSING if cores is None else f"{cores} cores, load {_or_dash(load)}"

    @property
    def memory(self) -> str:
        return _free_of(self.told.memory_free, self.told.memory)

    @property
    def disk(self) -> str:
        return _free_of(self.told.disk_free, self.told.disk)

    @property
    def gpus(self) -> list[tuple[str, str]]:
        return [_gpu(number, gpu) for number, gpu in enumerate(self.told.gpus)]


@dataclass(frozen=True)
class DeploymentRow:
    """A deployment's panel."""

    view: DeploymentView

    @property
    def arguments(self) -> str:
        """As the form takes them."""
        return "\n".join(f"{name}={value}" for name, value in self.view.row.arguments.items())

    @property
    def tone(self) -> str:
        return TONES[self.view.state]

    @property
    def replicas(self) -> list[tuple[ReplicaView, str, str]]:
        """Each with the tone and word of its state."""
        return [(each, *_replica_state(each)) for each in self.view.replicas]


def _replica_state(replica: ReplicaView) -> tuple[str, str]:
    if replica.row.leaving:
        return "off", "draining"
    if replica.ready:
        return "ok", "serves"
    phase = str(replica.row.told.get("phase", "not started"))
    return ("bad" if phase in ("waiting", "failed") else "warn"), phase


def _or_dash(value: object) -> str:
    return formats.MISSING if value is None else str(value)


def _free_of(free: int | None, whole: int | None) -> str:
    if free is None or whole is None:
        return formats.MISSING
    return f"{gib(free)} of {gib(whole)}"


def _gpu(number: int, gpu: GpuState) -> tuple[str, str]:
    """A GPU's name, and what is known of it."""
    known = {
        "{:.0%} busy": gpu.use,
        "{:d} °C": gpu.celsius,
        "{:.0f} W": gpu.watts,
        "{:,d} memory errors": gpu.errors,
    }
    words = [_free_of(gpu.memory_free, gpu.memory) + " free"]
    words += [form.format(value) for form, value in known.items() if value is not None]
    return f"GPU {number}: {gpu.name or 'unknown'}", " · ".join(words)


def _now(viewer: Viewer) -> dict[str, Any]:
    now = timezone.now()
    return {
        "viewer": viewer,
        "now": now,
        "hosts": [HostRow(row, is_fresh(row, now)) for row in host_list(user=viewer.user)],
        "rows": [DeploymentRow(view) for view in deployment_list(user=viewer.user, now=now)],
    }


def _index(request: HttpRequest, viewer: Viewer, command: str = "") -> HttpResponse:
    context = _now(viewer) | {
        "poll_ms": POLL_MS,
        "command": command,
        "models": [model.name for model in model_list()],
        "engines": list(ENGINE_ARGUMENTS),
        "sources": SOURCES,
        "draft": services.DeploymentDraft(model="", source_kind="", source_name=""),
    }
    context["host_names"] = [row.host.name for row in context["hosts"]]
    return show(request, viewer, "deployments", "fleet/deployments.html", context)


@page("deployments", Action.FLEET_VIEW, "GET")
def deployments(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Hosts and deployments; htmx asks for what moves, again and again."""
    part, now = "fleet/parts/deployments_now.html", lambda: _now(viewer)
    return moving(request, part, now, lambda: _index(request, viewer))


@secret_page("deployments/hosts", Action.FLEET_MANAGE, "GET", "POST")
@says_wrong("deployments")
def deployment_host(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Add a host, and show the command that starts its agent, in this one answer."""
    if request.method == "GET":
        return redirect("deployments")
    made = services.host_add(actor=viewer.user, name=request.POST.get("name", ""))
    command = agent_command(page_url(request), token=made.token, name=made.host.name)
    return _index(request, viewer, command)


@changes("deployments/hosts/<slug:name>/remove", Action.FLEET_MANAGE, "deployments", confirmed=True)
def deployment_host_end(request: HttpRequest, viewer: Viewer, name: str) -> str:
    host = host_get(Host, user=viewer.user, name=name)
    gone = services.host_remove(actor=viewer.user, host=host)
    when = "is removed" if gone else "will be removed once its agent has drained what it runs"
    return f"Host “{name}” {when}."


@changes("deployments/new", Action.FLEET_MANAGE, "deployments", confirmed=True)
def deployment_new(request: HttpRequest, viewer: Viewer) -> str:
    values = cleaned(DeploymentForm(request.POST))
    name = values.pop("name")
    draft = services.DeploymentDraft(**values, hosts=request.POST.getlist("hosts"))
    services.deployment_create(actor=viewer.user, name=name, draft=draft)
    return f"Deployment “{name}” is created. Hosts measure the model first."


@changes("deployments/<slug:name>/change", Action.FLEET_MANAGE, "deployments", confirmed=True)
def deployment_change(request: HttpRequest, viewer: Viewer, name: str) -> str:
    row = host_get(Deployment, user=viewer.user, name=name)
    values = cleaned(ChangeForm(request.POST))
    services.deployment_change(actor=viewer.user, deployment=row, values=values)
    return f"Deployment “{name}” is changed."


@changes("deployments/<slug:name>/remove", Action.FLEET_MANAGE, "deployments", confirmed=True)
def deployment_end(request: HttpRequest, viewer: Viewer, name: str) -> str:
    row = host_get(Deployment, user=viewer.user, name=name)
    services.deployment_remove(actor=viewer.user, deployment=row)
    return f"Deployment “{name}” is draining and will then be removed."
