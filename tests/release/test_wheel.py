"""The wheel: complete, the same bytes each time, and enough to run Sluice where no checkout is."""

from __future__ import annotations

import subprocess
import sysconfig
import venv
import zipfile
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest

from controlplane.embedded import exposure
from inference.contract.version import VERSION
from tests.release.wheel import DOCUMENTATION_PACKED, build, packed
from tests.support.loopback import reserve_port
from tests.support.sluice_run import STOP_SECONDS_MAX, environment, read_until_ready

ANYWHERE = "0.0.0.0"
# The documentation is built for each wheel.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def sluice(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an empty environment with the wheel, and what it needs from this one."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        wheel,
    ]
    subprocess.run(install, check=True)
    site = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(site, "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "sluice"


def test_two_builds_are_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    again = build(tmp_path)
    assert again.name == wheel.name == f"sluice-{VERSION}-py3-none-any.whl"
    assert sha256(again.read_bytes()).digest() == sha256(wheel.read_bytes()).digest()


def test_all_files_of_the_packages_are_in_it_and_no_others(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    built = {name for name in names if name.startswith(f"{DOCUMENTATION_PACKED}/")}
    assert names - built == set(packed())
    assert f"{DOCUMENTATION_PACKED}/index.html" in built


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--version"], f"sluice {VERSION}\n"),
        (["preflight", "--help"], "usage: sluice preflight"),
        (["node", "--version"], f"sluice {VERSION}\n"),
    ],
)
def test_its_command_works_without_a_checkout(
    sluice: Path, tmp_path: Path, words: list[str], told: str
) -> None:
    ended = subprocess.run(
        [sluice, *words], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert ended.stdout.startswith(told)


def test_it_runs_and_its_pages_answer_to_other_machines(sluice: Path, tmp_path: Path) -> None:
    port = reserve_port()
    command: list[str | Path] = [
        sluice,
        "run",
        "--host",
        ANYWHERE,
        "--port",
        str(port),
        "--no-node",
    ]
    variables = environment(tmp_path / "data")
    with subprocess.Popen(
        command, cwd=tmp_path, env=variables, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            text = read_until_ready(process)
            assert "/setup/" in text and f"on {ANYWHERE}, without encryption" in text
            for address in ["127.0.0.1", *exposure.outside(ANYWHERE)]:
                page = httpx2.get(f"http://{address}:{port}/sign-in")
                assert page.status_code == 200, address
        finally:
            process.terminate()
            process.communicate(timeout=STOP_SECONDS_MAX)


def test_an_installed_wheel_keeps_its_data_at_home(sluice: Path, tmp_path: Path) -> None:
    variables = environment(tmp_path) | {"HOME": str(tmp_path)}
    del variables["SLUICE_DATA"]
    code = (
        "from controlplane.settings.paths import DATA_DIR, RUNBOOKS_DIR\n"
        "print(DATA_DIR, len(list(RUNBOOKS_DIR.glob('*.md'))))"
    )
    python = sluice.with_name("python")
    told = subprocess.run(
        [python, "-c", code],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    runbooks = [name for name in packed() if name.startswith("controlplane/runbooks/")]
    assert told.stdout.split() == [f"{tmp_path}/.local/share/sluice", str(len(runbooks))]
    assert runbooks
