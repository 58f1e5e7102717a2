"""Whatever is installed is pinned by hash: every lock, and every command that installs one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
INSTALLS = ("Makefile", "docker/Dockerfile", "docker/node.Dockerfile")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_requirement_of_a_lock_has_hashes(lock: Path) -> None:
    lines = [line for line in lock.read_text().splitlines() if not line.startswith("#")]
    wanted = "\n".join(lines).replace("\\\n", " ").splitlines()
    assert wanted
    for line in wanted:
        assert re.match(r"[A-Za-z0-9._-]+(\[.*\])?==\S+ ", line), line
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", line), line


def test_every_list_has_a_lock() -> None:
    lists = {path.stem for path in (ROOT / "requirements").glob("*.in")}
    assert lists <= {lock.stem for lock in LOCKS}
    pins = [(ROOT / "requirements" / name).read_text() for name in ("torch.in", "torch-cpu.txt")]
    versions = {found[1] for pin in pins if (found := re.search(r"^torch==([0-9.]+)", pin, re.M))}
    assert len(versions) == 1


@pytest.mark.parametrize("name", INSTALLS)
def test_every_install_demands_hashes(name: str) -> None:
    text = (ROOT / name).read_text().replace("\\\n", " ")
    # What a variable stands for, so that its flags are seen where it is used.
    for variable, value in re.findall(r"^(\w+) :?= (.*)$", text, re.M):
        text = text.replace(f"$({variable})", value)
    found = re.findall(r"install [^;&|]*-r [^;&|]*", text)
    assert found and all("--require-hashes" in each for each in found)
