"""C9: members, owners, objectives and connections are in the document, and a folder is watched."""

from __future__ import annotations

import queue
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
import yaml
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command

from controlplane.blueprint.configuration import configuration_apply, configuration_export
from controlplane.blueprint.providers import key_read
from controlplane.blueprint.watching import configuration_passes
from controlplane.catalog.selectors import model_find, pool_find
from controlplane.connections.keys import key_opened, keys_active
from controlplane.connections.models import Connection
from controlplane.core.audit.entries import OPERATOR
from controlplane.slos.models import EVERYONE
from controlplane.slos.selectors import objectives_living, stage_owners
from controlplane.tenants.access import role_of
from controlplane.tenants.sign_in.accounts import user_find
from tests.support.people import Cast, make_cast, signed_in
from tests.support.rules import make_models

ALICE = "alice@example.org"
LINE_SECONDS_MAX = 60.0
SECRETS = ("sk-first-0123456789", "sk-second-0123456789", "sk-third-0123456789")
WHOLE = """\
sluice: 1
pools:
  - name: providers
models:
  - name: gpt
    pool: providers
    context_window: 8192
    output_tokens_default: 64
    output_tokens_max: 512
connections:
  - name: openai-eu
    kind: openai
    key: {env: TEST_PROVIDER_KEY}
    models: {gpt: gpt-4o-mini}
stages:
  - stage: s1_admission
    team: edge
    email: edge@example.org
    budget_us: 5000
    duties: {limits: {team: quota}}
objectives:
  - {name: first token, indicator: ttft, threshold: 500000, target_ppm: 990000, team: platform}
organizations:
  - name: Acme
    members:
      - {email: Dora@example.org, role: finance}
      - {email: bob@example.org, role: admin}
    objectives:
      - name: web answers
        indicator: availability
        target_ppm: 999000
        project: web
        team: web
        alert_rules: [page_slow, page_quick]
"""
GONE = """\
sluice: 1
models:
  - {name: gpt, absent: true}
connections:
  - {name: openai-eu, absent: true}
objectives:
  - {name: first token, absent: true}
organizations:
  - name: Acme
    members: [{email: dora@example.org, absent: true}]
    objectives: [{name: web answers, absent: true}]
"""


@pytest.fixture
def cast(database: str, monkeypatch: pytest.MonkeyPatch) -> Cast:
    """People, two models, and a provider's key in the environment."""
    monkeypatch.setenv("TEST_PROVIDER_KEY", SECRETS[0])
    make_models("small", "other")
    return make_cast()


def apply(text: str) -> list[str]:
    done = configuration_apply(actor=OPERATOR, text=text, dry_run=False, keys=key_read)
    return [change.path for change in done]


def errors(text: str) -> dict[str, list[str]]:
    with pytest.raises(ValidationError) as refused:
        configuration_apply(actor=OPERATOR, text=text, keys=key_read)
    found: dict[str, list[str]] = refused.value.message_dict
    return found


def key_secrets() -> list[str]:
    return [key_opened(key) for key in keys_active(Connection.objects.get(removed_at=None))]


def test_all_of_it_is_made_exported_and_taken_away(cast: Cast) -> None:
    assert apply(WHOLE)
    dora, bob = user_find(email="dora@example.org"), user_find(email="bob@example.org")
    assert dora is not None and not dora.has_usable_password()
    assert bob is not None
    assert [role_of(who, cast.acme.id) for who in (dora, bob)] == ["finance", "admin"]
    owner = stage_owners()["s1_admission"]
    assert (owner.team, owner.email, owner.budget_us) == ("edge", "edge@example.org", 5_000)
    assert [one.name for one in objectives_living(actor=OPERATOR, organization=EVERYONE)] == [
        "first token"
    ]
    assert key_secrets() == [SECRETS[0]]
    assert apply(WHOLE) == []
    exported = configuration_export(actor=OPERATOR)
    assert SECRETS[0] not in exported
    assert apply(exported) == [] and configuration_export(actor=OPERATOR) == exported
    acme = next(o for o in yaml.safe_load(exported)["organizations"] if o["name"] == "Acme")
    promise = acme["objectives"][0]
    assert (promise["project"], promise["alert_rules"]) == ("web", ["page_quick", "page_slow"])
    assert apply(GONE)
    assert apply(GONE) == []
    assert role_of(dora, cast.acme.id) is None and model_find(name="gpt") is None
    assert not Connection.objects.filter(removed_at=None).exists()
    assert not objectives_living(actor=OPERATOR, organization=EVERYONE)


def test_a_provider_key_rotates_with_overlap_and_from_a_file(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    apply(WHOLE)
    monkeypatch.setenv("TEST_PROVIDER_KEY", SECRETS[1])
    assert apply(WHOLE) == ["connections[0].key"]
    assert key_secrets() == list(SECRETS[:2])
    file = tmp_path / "key"
    file.write_text(f"{SECRETS[2]}\n")
    by_file = WHOLE.replace("env: TEST_PROVIDER_KEY", f"file: {file}")
    assert apply(by_file) == ["connections[0].key"] and apply(by_file) == []
    assert key_secrets() == list(SECRETS[1:])
    # Who is not on this host may not have its files read.
    with pytest.raises(ValidationError, match="Only `sluice config` reads keys"):
        configuration_apply(actor=cast.stella, text=WHOLE, dry_run=False)


@pytest.mark.parametrize(
    ("text", "path", "told"),
    [
        (
            "models:\n  - {name: small, absent: true, pool: x}\n",
            "models[0].pool",
            "Must be left out",
        ),
        ("connections:\n  - {name: a, kind: openai, key: {}}\n", "connections[0].key", "`env` or"),
        (
            "connections:\n  - {name: a, kind: openai, key: {env: NONE_SUCH}}\n",
            "connections[0].key.env",
            "NONE_SUCH is not set",
        ),
        ("connections:\n  - {name: a}\n", "connections[0].kind", "Required"),
        ("stages:\n  - {stage: s9, team: us}\n", "stages[0].stage", "Must be one of"),
        ("objectives:\n  - {name: a, indicator: ttft}\n", "objectives[0].target_ppm", "Missing"),
        (
            f"organizations:\n  - {{name: Acme, members: [{{email: {ALICE}, absent: true}}]}}\n",
            "organizations[0].members[0].role",
            "at least one owner",
        ),
    ],
)
def test_a_slip_names_its_field(cast: Cast, text: str, path: str, told: str) -> None:
    found = errors(f"sluice: 1\n{text}")
    assert list(found) == [path]
    assert told in found[path][0] and "(line 3)" in found[path][0]


def test_an_owner_can_follow_another(cast: Cast) -> None:
    swapped = "[{email: alice@example.org, role: viewer}, {email: bob@example.org, role: owner}]"
    apply(f"sluice: 1\norganizations:\n  - {{name: Acme, members: {swapped}}}\n")
    assert [role_of(who, cast.acme.id) for who in (cast.alice, cast.bob)] == ["viewer", "owner"]


class Watch:
    """`sluice config watch` and the lines that it says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        self._seen: list[str] = []
        Thread(target=self._read, args=(process,), daemon=True).start()

    def until(self, words: str) -> None:
        while not any(words in line for line in self._seen):
            self._seen.append(self._lines.get(timeout=LINE_SECONDS_MAX))
        self._seen.clear()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(line)


@contextmanager
def watching(folder: Path) -> Iterator[Watch]:
    command = [sys.executable, "-m", "controlplane", "config", "watch", str(folder)]
    with subprocess.Popen(
        [*command, "--interval", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield Watch(process)
        finally:
            process.terminate()
            assert process.wait(LINE_SECONDS_MAX) == 0


def nodes_max(name: str = "default") -> int | None:
    pool = pool_find(name=name)
    return pool.nodes_max if pool else None


def test_a_watched_folder_is_applied_whole_or_not_at_all(cast: Cast, tmp_path: Path) -> None:
    pools, people = tmp_path / "pools.yaml", tmp_path / "people.yaml"
    pools.write_text("sluice: 1\npools:\n  - {name: default, nodes_max: 7}\n")
    people.write_text("sluice: 1\norganizations:\n  - {name: Acme, members: []}\n")
    with watching(tmp_path) as watch:
        watch.until("applied people.yaml, pools.yaml: 1 changed")
        assert nodes_max() == 7
        # One document is right and the other is not: neither is applied.
        pools.write_text("sluice: 1\npools:\n  - {name: default, nodes_max: 9}\n")
        people.write_text("sluice: 1\norganizations:\n  - {name: Acme, member: []}\n")
        watch.until("people.yaml: organizations[0].member: Unknown field. (line 3)")
        assert nodes_max() == 7
        people.unlink()
        watch.until("applied pools.yaml: 1 changed")
        assert nodes_max() == 9
    latest, refused, first = configuration_passes(actor=OPERATOR)
    assert (latest.applied, refused.applied, first.applied) == (True, False, True)
    page = signed_in(cast.stella).get("/configuration").content.decode()
    assert refused.errors[0] in page and str(tmp_path) in page
    with pytest.raises(CommandError, match="is not a folder"):
        call_command("config", "watch", str(pools))
