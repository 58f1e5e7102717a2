"""What blocks of the documentation take for granted, and what nothing here can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.documented.blocks import Block
from tests.documented.installation import Installation
from tests.support.waiting import wait_for

# What a test of its own runs, which reads it from the document: a block, or all of a document.
ELSEWHERE: Mapping[str | tuple[str, str], str] = {
    ("docs/deployment.md", "location /v1/ {"): "tests/requirements/test_i4_pools_of_gateways.py",
    "docs/air-gapped.md": "tests/release/first_token.py",
    "docs/clients.md": "tests/tidy/test_clients.py",
    "docs/single-sign-on.md": "tests/requirements/test_c1_single_sign_on.py",
}
# What no machine of the tests can run, and why.
EXCEPTIONS: Mapping[tuple[str, str], str] = {
    (
        "docs/operations.md",
        "python -m venv .venv-gpu && .venv-gpu/bin/pip install --require-hashes --no-deps"
        " -r requirements/vllm.txt  # GPUs, official build",
    ): "needs a GPU",
    (
        "docs/architecture.md",
        "clients ──/v1──▶ gateway ──(one per core)──┐"
        "                    ┌── PostgreSQL: the only truth",
    ): "a drawing",
}
# Stands for what each reader has of their own.
PLACEHOLDERS: Mapping[str, Callable[[Installation], str]] = {
    "https://sluice.example.org": lambda here: here.url,
    "http://127.0.0.1:8000": lambda here: here.url,
    "sk_sluice_...": lambda here: here.key,
    "sk_sluice_…": lambda here: here.key,
    "sk_…": lambda here: here.key,
    "SLUICE_API_KEY=… ": lambda here: f"SLUICE_API_KEY={here.key} ",
    "ANTHROPIC_MODEL=my-model": lambda _: "ANTHROPIC_MODEL=sluice-5m",
    "SLUICE_BACKUP_PASSPHRASE=...": lambda _: "SLUICE_BACKUP_PASSPHRASE=correct-horse-battery",
    "proj_…": lambda here: here.project(),
    "org_…": lambda here: here.organization(),
    " uvicorn …": lambda _: " uvicorn controlplane.asgi:application",
}
# Loads are cut short.
BRIEF = {
    "--repeat 3": "--requests 2",
    "sluice-5m    ": "sluice-5m --requests 2 #",
    "--seconds 120 --requests 600": "--seconds 1",
    "--streams 16": "--streams 2 --requests 4",
}


def _head(here: Installation) -> str:
    """As the command before it prints it, once a row is linked."""
    told = ["0:"]

    def linked() -> bool:
        told[:] = here.sh("python manage.py verify_audit", here.folder).split()[-1:]
        return not told[0].startswith("0:")

    wait_for(linked, "a link of the audit")
    return told[0]


def _next_version(here: Installation) -> str:
    listed = here.api("GET", "/api/routing/versions")["data"]
    return f"versions/{max((int(each['version']) for each in listed), default=0) + 1}"


# Beside these, by a document and what the block holds.
OF_BLOCKS: Mapping[tuple[str, str], Callable[[Installation], Mapping[str, str]]] = {
    ("docs/audit.md", "4711:"): lambda here: {"4711:9f2c…": _head(here)},
    ("docs/backup.md", "/backups"): lambda here: {"/backups": str(here.folder / "backups")},
    ("docs/backup.md", "s3://"): lambda here: {
        "backup s3://company/prod": f"backup {here.folder / 'copied'}",
    },
    ("docs/deployment.md", "sluice backup /backups"): lambda here: {
        "/backups": str(here.folder / "others"),
    },
    ("docs/deployment.md", "alias sluice="): lambda _: {
        "Acme": "Composed", "create sluice-5m": "create five", "admin@": "composed@",
    },
    ("docs/deployment.md", "key-pepper.before"): lambda _: {
        "cd docker/secrets": "sh docker/make-secrets.sh\ncd docker/secrets",
    },
    ("docs/invoices-and-payments.md", "refuse ID"): lambda here: {
        "refuse ID": f"refuse {here.made('grant')}",
    },
    ("docs/kubernetes.md", "setup_link"): lambda _: {"Acme": "Clustered", "admin@": "cluster@"},
    ("docs/load.md", "load"): lambda _: BRIEF,
    ("docs/operations.md", "postgres://"): lambda _: {"export ": "# "},
    ("docs/operations.md", "setup_link"): lambda _: {
        "Acme": "Installed", "create sluice-5m": "create shipped", "admin@": "installed@",
    },
    ("docs/operations.md", "key_…"): lambda here: {
        "rotate key_…": f"rotate {here.made('one')}", "revoke key_…": f"revoke {here.made('two')}",
    },
    ("docs/routing.md", "versions/8"): lambda here: {"versions/8": _next_version(here)},
    ("docs/fleet.md", "--start-command"): lambda _: {"default --min 1": "started --min 0"},
    ("docs/fleet.md", "kv_consumer"): lambda _: {" …": " --upstream-model m --model-name m"},
    ("docs/changes.md", "key_…"): lambda here: {"key_…": here.made("three")},
}  # fmt: skip


def filled(block: Block, here: Installation) -> str:
    """The block's text with this installation's own values."""
    text = block.text
    for (file, part), replaced in OF_BLOCKS.items():
        if block.file == file and part in block.text:
            for old, new in replaced(here).items():
                text = text.replace(old, new)
    for old, value in PLACEHOLDERS.items():
        if old in text:
            text = text.replace(old, value(here))
    return text


@dataclass(frozen=True)
class Sent:
    """Where a body goes, in what it is wrapped, and what has to be made before."""

    method: str
    path: Callable[[Installation], str]
    wrapped: Callable[[Any], Any]
    before: tuple[str, ...] = ()


def _templates(name: str) -> Sent:
    return Sent(
        "POST",
        lambda here: f"/api/catalog/templates/{here.organization()}/{name}/versions",
        lambda body: {"body": body},
        (name,),
    )


def _content(body: Any) -> Any:
    return {"content": body}


# By what stands in a body of JSON, and in no other.
SENT: Mapping[str, Sent] = {
    '"budgets":': Sent(
        "POST", lambda here: f"/api/organizations/{here.organization()}/limits/changes", _content
    ),
    '"prices":': Sent("POST", lambda _: "/api/catalog/prices/changes", _content),
    '"policies":': Sent("PATCH", lambda here: here.of_project("Acme"), lambda body: body),
    '"degrade_order":': Sent(
        "POST", lambda _: "/api/routing/versions", lambda body: {"rules": [body]}
    ),
    '"values_chars_max":': _templates("support"),
    '"tool":': _templates("weather"),
}
CHAT = {"model": "sluice-5m", "messages": [{"role": "user", "content": "Hi"}]}
# An answer, by where it comes from: the path and, where there is one, the body.
ANSWERED: Mapping[str, tuple[str, Any]] = {
    '"fields":': ("/api/audit?limit=0", None),
    '"first_id":': ("/api/audit?limit=1", None),
    '"param": "temperature"': ("/v1/chat/completions", {**CHAT, "temperature": "hot"}),
    '"request_id":': ("/v1/messages", {**CHAT, "max_tokens": 0}),
}
# Components of the description of `/v1`.
SHAPES: Mapping[str, str] = {
    '"degraded":': "Error",
    '"prompt": {"id"': "ChatRequest",
    '"custom_id":': "ChatRequest",
}


def of(table: Mapping[str, Any], text: str) -> Any:
    """What a table says of the block that holds one of its parts."""
    (found,) = (value for part, value in table.items() if part in text)
    return found
