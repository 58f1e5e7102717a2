"""The inside of the export benchmark, imported once Django is set up: its tenant, and a worker."""

from __future__ import annotations

import os
import re
import time
import uuid
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.machine import rss_mib
from controlplane.billing.exports.models import ExportState
from controlplane.billing.exports.selectors import export_get
from controlplane.billing.exports.services import DueExport, export_create
from controlplane.billing.exports.spec import spec_of
from controlplane.billing.exports.writer import export_write
from controlplane.core.audit.entries import OPERATOR
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.services import organization_create, project_create
from controlplane.tenants.sign_in.accounts import user_create

KEYS = 50


def make_tenant() -> tuple[uuid.UUID, uuid.UUID, list[uuid.UUID]]:
    """Organization, project and keys."""
    owner = user_create(actor=OPERATOR, email="owner@example.org")
    organization = organization_create(actor=OPERATOR, name="Large", owner=owner)
    project = project_create(actor=OPERATOR, organization=organization, name="all")
    keys = [
        apikey_create(actor=OPERATOR, project=project, label=f"key {number}").key.id
        for number in range(KEYS)
    ]
    return organization.id, project.id, keys


def write_file(
    organization: uuid.UUID, kind: str, grain: str, days: tuple[date, date]
) -> dict[str, Any]:
    """Be a worker for one file; what it took, and how large this process ever was."""
    first, end = days
    spec = spec_of(organization, kind=kind, start=first, end=end, grain=grain)
    made = export_create(actor=OPERATOR, spec=spec, enqueue=lambda organization, export: None)
    before, cpu, began = rss_mib(os.getpid()), time.process_time(), time.monotonic()
    while export_write(DueExport(organization, made.id)):
        continue
    took = time.monotonic() - began
    done = export_get(actor=OPERATOR, organization_id=organization, export_id=made.id)
    if done.state != ExportState.DONE:
        raise SystemExit(f"{kind}: {done.state} {done.error}")
    return {
        "kind": kind,
        "grain": grain,
        "days": (end - first).days,
        "rows": done.rows_done,
        "bytes": done.bytes_done,
        "s": took,
        "cpu_s": time.process_time() - cpu,
        "rss_before_mib": before,
        "rss_peak_mib": _peak_mib(),
    }


def _peak_mib() -> float:
    """Of this program alone; `getrusage` would count what forked it, too."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024
