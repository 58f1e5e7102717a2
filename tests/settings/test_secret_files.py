"""Secrets of an installation: made once, private, shared by all processes, never short."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from controlplane.embedded.processes import open_log
from controlplane.settings import secret_files


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "var"
    monkeypatch.setattr(secret_files, "DATA_DIR", folder)
    monkeypatch.setattr(secret_files, "SECRETS_DIR", folder / "secrets")
    return folder


def test_made_once_and_private(data: Path) -> None:
    first = secret_files.kept_secret("pepper")
    assert secret_files.kept_secret("pepper") == first
    assert len(first) >= secret_files.SECRET_CHARS_MIN
    file = data / "secrets" / "pepper"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    # Nobody else may list what is there; for root, the databases' account must get through.
    assert stat.S_IMODE(data.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)
    log = data / "gateway.log"
    open_log(log).close()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_processes_that_start_together_agree(data: Path) -> None:
    (data / "secrets").mkdir(parents=True)
    with ThreadPoolExecutor(8) as pool:
        values = set(pool.map(secret_files.kept_secret, ["pepper"] * 32))
    assert len(values) == 1
    assert [file.name for file in (data / "secrets").iterdir()] == ["pepper"]


def test_an_emptied_file_is_named_and_not_replaced(data: Path) -> None:
    secret_files.kept_secret("pepper")
    (data / "secrets" / "pepper").write_text("")
    with pytest.raises(ImproperlyConfigured, match="pepper holds no secret"):
        secret_files.kept_secret("pepper")


def test_the_environment_comes_first_and_must_be_long(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_TEST_SECRET", "x" * 40)
    assert secret_files.secret("SLUICE_TEST_SECRET", "pepper") == "x" * 40
    assert not data.exists()
    monkeypatch.setenv("SLUICE_TEST_SECRET", "short")
    with pytest.raises(ImproperlyConfigured, match="SLUICE_TEST_SECRET"):
        secret_files.secret("SLUICE_TEST_SECRET", "pepper")
