"""From nothing but Python to the first token: the wheel, installed as a stranger does it, and run;
and the same without the internet, as the documentation says.

`make test-install` runs it and prints how long each part took; `make test` does not, since it
installs all that the product needs once more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from inference.contract.version import VERSION
from tests.documented.blocks import blocks
from tests.release.wheel import ROOT, build
from tests.support.loopback import HOST, reserve_port
from tests.support.servers import make_data_folder
from tests.support.sluice_run import STOP_SECONDS_MAX, environment, read_until_ready

pytestmark = pytest.mark.timeout(1_800)

EXTRAS = "run,torch,redis"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
# Nobody answers there.
NOWHERE = "http://127.0.0.1:9"
CLOSED = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), NOWHERE),
    "NO_PROXY": "127.0.0.1,localhost",
    "PIP_INDEX_URL": NOWHERE,
}
CHAT = {"model": "sluice-5m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}


class Parts:
    """How long each part took, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - began

    def __str__(self) -> str:
        told = {**self.seconds, "in all": sum(self.seconds.values())}
        return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in told.items())


def first_piece(url: str, key: str) -> str:
    head = {"authorization": f"Bearer {key}"}
    with httpx2.stream("POST", f"{url}/v1/chat/completions", json=CHAT, headers=head) as answer:
        assert answer.status_code == 200
        return next(line for line in answer.iter_lines() if '"content":"' in line.replace(" ", ""))


def test_from_a_wheel_to_the_first_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel, parts = build(tmp_path), Parts()
    folder = tmp_path / "installed"
    with parts.part("environment"):
        venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    with parts.part("torch"):
        subprocess.run(["make", "-s", "torch", f"PYTHON_OF={python}"], cwd=ROOT, check=True)
    with parts.part("the rest"):
        install = [str(python), "-m", "pip", "install", "-q", f"{wheel}[{EXTRAS}]"]
        subprocess.run(install, check=True)
    ask_what_runs(folder / "bin" / "sluice", tmp_path, parts)
    with capsys.disabled():
        sys.stdout.write(f"\n{parts}\n")


def test_without_the_internet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What docs/air-gapped.md says, with another index for torch where the tests have one."""
    fetch, install = [block.text for block in blocks() if block.file == "docs/air-gapped.md"]
    parts, place = Parts(), f"--extra-index-url {TORCH_INDEX}"
    assert place in fetch
    fetch = fetch.replace(place, "").replace("-d wheels", f"-d {tmp_path}/wheels")
    fetch = fetch.replace("--find-links wheels", f"--find-links {tmp_path}/wheels")
    pip = f'pip() {{ {sys.executable} -m pip --disable-pip-version-check -q "$@"; }}\n'
    with parts.part("download"):
        subprocess.run(["sh", "-ec", pip + fetch], cwd=ROOT, check=True)
    shutil.copy(ROOT / "var" / "release" / f"sluice-{VERSION}-py3-none-any.whl", tmp_path)
    steps, found, run = install.rstrip().rpartition("\n")
    assert found and run == "sluice/bin/sluice run"
    with parts.part("install"):
        closed = os.environ | CLOSED
        subprocess.run(["sh", "-ec", steps], cwd=tmp_path, env=closed, check=True)
    ask_what_runs(tmp_path / "sluice" / "bin" / "sluice", tmp_path, parts, CLOSED)
    with capsys.disabled():
        sys.stdout.write(f"\n{parts}\n")


def ask_what_runs(
    sluice: Path, folder: Path, parts: Parts, beside: Mapping[str, str] | None = None
) -> None:
    """Start it with these variables `beside`, and ask for one token."""
    told = subprocess.run([sluice, "--version"], capture_output=True, text=True, check=True)
    assert told.stdout == f"sluice {VERSION}\n"
    with make_data_folder() as name:
        data, port = Path(name), reserve_port()
        began = time.monotonic()
        with subprocess.Popen(
            [sluice, "run", "--port", str(port)], cwd=folder, text=True,
            env={**environment(data), **(beside or {})},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            try:
                read_until_ready(process)
                parts.seconds["start"] = time.monotonic() - began
                lines = (data / "demo.env").read_text().splitlines()
                key = dict(line.split("=", 1) for line in lines)["SLUICE_KEY"]
                with parts.part("first token"):
                    assert first_piece(f"http://{HOST}:{port}", key)
            finally:
                process.terminate()
                process.communicate(timeout=STOP_SECONDS_MAX)
