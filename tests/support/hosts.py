"""An agent as a real process, and the API of hosts and deployments as staff call it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from django.conf import settings

from tests.support.product import Child

SHIPPED = settings.SHIPPED_MODEL_DIR
MODEL = "sluice-5m"
# Longer than the start of a node on a busy machine.
SERVES_S = 120.0


@dataclass(frozen=True)
class Staff:
    """The operator's calls of `/api/` at a base URL."""

    url: str

    def __call__(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and body, None without one."""
        answer = httpx2.request(
            method,
            f"{self.url}/api/{path}",
            headers={"authorization": f"Bearer {settings.OPERATOR_TOKEN}"},
            json={} if body is None else body,
            timeout=30.0,
        )
        return answer.status_code, answer.json() if answer.content else None

    def deployment(self, name: str) -> dict[str, Any]:
        """A deployment as it stands; empty where there is none."""
        status, found = self("GET", f"deployments/{name}")
        return dict(found) if status == 200 else {}

    def deploy(self, name: str, **values: object) -> dict[str, Any]:
        """Deploy the shipped model from its folder, unless `values` say otherwise."""
        body = {"name": name, "model": MODEL, "source_kind": "folder", "source_name": str(SHIPPED)}
        status, made = self("POST", "deployments", body | values)
        assert status == 201, made
        return dict(made)


def agent_child(
    staff: Staff, folder: Path, name: str = "host-1", environment: Mapping[str, str] | None = None
) -> Child:
    """The agent of a host that staff have just added, not started yet."""
    status, made = staff("POST", "hosts", {"name": name})
    assert status == 201, made
    data = folder / name
    argv = [sys.executable, "-m", "inference.agent", "--control", staff.url, "--name", name]
    argv += ["--data", str(data), "--models", str(SHIPPED.parent)]
    env = {"SLUICE_ENROL_TOKEN": made["token"], **(environment or {})}
    return Child(f"agent-{name}", argv, env, folder / f"agent-{name}.log")
