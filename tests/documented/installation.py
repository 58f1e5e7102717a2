"""One real installation that has what the documentation speaks of, and a folder for each block."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.documented import programs
from tests.documented.blocks import ROOT, blocks
from tests.support.servers import make_data_folder
from tests.support.sluice_run import Started, environment, running
from tests.support.waiting import wait_for

PASSPHRASE = "correct-horse-battery"
BLOCK_SECONDS_MAX = 120.0
ASK = Path(__file__).with_name("ask.py")
LINKED = ("manage.py", "controlplane", "inference", "requirements", "Makefile")
SHIM = '#!/bin/sh\nexec {python} -IS {ask} {door} {name} "$@"\n'
CURL = '#!/bin/sh\nexec {curl} --fail-with-body "$@"\n'
PREAMBLE = "set -eu -o pipefail\nshopt -s expand_aliases\n"
# What the documentation takes for granted: an organization that pays ahead, models, pools.
BEFORE = """
organization() { sluice orgs create "$1" --owner ann@example.org; }
model() { sluice models create "$@" --context-window 4096 --output-default 16 --output-max 64 \
  --input-usd 0.15 --cached-usd 0.03 --output-usd 0.60; }
organization Acme && organization Bulk
sluice wallet give Acme --usd 10 --reason first --becomes-prepaid
for each in spare large providers; do sluice models pool $each; done
for each in small large large-next big-70b mini midi maxi; do model $each; done
model gpt --pool providers
sluice keys create one --organization Acme --json > one.json
sluice keys create two --organization Acme --json > two.json
sluice keys create three --organization Demo --json > three.json
sluice wallet give Bulk --usd 5000 --reason much --becomes-prepaid --json > grant.json
"""


@dataclass
class Installation:
    """What runs, and what of it the documentation's placeholders stand for."""

    started: Started
    data: Path
    shims: Path
    folder: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.started.port}"

    @property
    def key(self) -> str:
        lines = (self.data / "demo.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)["SLUICE_KEY"]

    @property
    def operator(self) -> str:
        return (self.data / "secrets" / "operator-token").read_text().strip()

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """What the operator's API answers; fails where it refuses."""
        answer = httpx2.request(
            method, self.url + path, json=body, timeout=BLOCK_SECONDS_MAX,
            headers={"authorization": f"Bearer {self.operator}"},
        )  # fmt: skip
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json()

    def answer(self, path: str, body: Any = None) -> Any:
        """What is answered to the operator or, below `/v1`, to the key, whatever the status."""
        bearer = self.key if path.startswith("/v1") else self.operator
        return httpx2.request(
            "POST" if body else "GET", self.url + path, json=body, timeout=BLOCK_SECONDS_MAX,
            headers={"authorization": f"Bearer {bearer}"},
        ).json()  # fmt: skip

    def made(self, name: str) -> str:
        """The id of what was made before."""
        return str(json.loads((self.folder / f"{name}.json").read_text())["id"])

    def organization(self, name: str = "Demo") -> str:
        listed = self.api("GET", "/api/organizations")["data"]
        return next(str(each["id"]) for each in listed if each["name"] == name)

    def project(self, name: str = "Demo") -> str:
        path = f"/api/organizations/{self.organization(name)}/projects"
        return str(self.api("GET", path)["data"][0]["id"])

    def of_project(self, name: str) -> str:
        """The path of an organization's project."""
        return f"/api/organizations/{self.organization(name)}/projects/{self.project(name)}"

    def sh(self, text: str, folder: Path) -> str:
        """What a script prints; fails where a command does."""
        script = folder / "block.sh"
        script.write_text(PREAMBLE + text)
        variables = environment(
            self.data,
            PATH=f"{self.shims}:{os.environ['PATH']}", HOME=str(folder),
            SLUICE=self.url, URL=self.url, TOKEN=self.operator,
            SLUICE_API_KEY=self.key, SLUICE_KEY=self.key, OPENAI_API_KEY="sk-of-openai",
        )  # fmt: skip
        done = subprocess.run(
            ["bash", script], cwd=folder, env=variables, capture_output=True, text=True,
            check=False, timeout=BLOCK_SECONDS_MAX,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@contextmanager
def documented() -> Iterator[Installation]:
    """Started, with all that BEFORE makes."""
    with make_data_folder() as name, make_data_folder() as beside:
        data, folder = Path(name), Path(beside)
        with running(data) as started, _programs(data, folder) as shims:
            made = Installation(started, data, shims, folder)
            made.sh(BEFORE, folder)
            _projects(made)
            yield made


def _projects(made: Installation) -> None:
    """One for examples, and one that keeps what stored responses need."""
    path = f"/api/organizations/{made.organization('Acme')}/projects"
    made.api("POST", path, {"name": "web"})
    kept = {"keeps_days": 1, "content_readers": ["owner"]}
    made.api("PUT", made.of_project("Demo") + "/keeping", kept)


@contextmanager
def _programs(data: Path, folder: Path) -> Iterator[Path]:
    """A folder of programs, each of which asks one process that has loaded the product."""
    shims, door = folder / "bin", folder / "door"
    shims.mkdir()
    for name in programs.KNOWN:
        text = SHIM.format(python=sys.executable, ask=ASK, door=door, name=name)
        _program(shims / name, text)
    _program(shims / "curl", CURL.format(curl=shutil.which("curl")))
    with subprocess.Popen(
        [sys.executable, "-m", programs.__name__, door],
        cwd=ROOT,
        env=environment(data, PYTHONPATH=str(ROOT), SLUICE_BACKUP_PASSPHRASE=PASSPHRASE),
    ) as server:  # fmt: skip
        try:
            wait_for(door.exists, "the programs")
            yield shims
        finally:
            server.terminate()


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def checkout(folder: Path) -> Path:
    """A folder as a reader has it: the files of a clone, of which docker/ may be written to."""
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "docker", folder / "docker")
    shutil.copy(ROOT / "docker" / "manifest.yaml", folder)
    for name in ("src", "logs", "var/postgres", "secrets"):
        (folder / name).mkdir(parents=True)
    said = [{"role": "user", "content": "Hi"}]
    (folder / "body.json").write_text(
        json.dumps({"model": "sluice-5m", "max_tokens": 4, "messages": said})
    )
    for block in blocks():
        if block.key[1] == "# values.yaml":
            (folder / "values.yaml").write_text(block.text)
        if block.key[1].startswith('{"custom_id"'):
            (folder / "requests.jsonl").write_text(block.text)
    return folder
