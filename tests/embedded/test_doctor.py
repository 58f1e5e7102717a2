"""`sluice doctor`: every finding says what is, and where it is wrong what to do."""

from __future__ import annotations

import socket
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from controlplane.embedded import doctor, layout
from controlplane.embedded.doctor import DoctorFinding, findings
from tests.support.loopback import HOST, reserve_port


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir(mode=0o700)
    (tmp_path / "secrets" / "django").touch(mode=0o600)
    return tmp_path


def found(data: Path, subject: str, port: int | None = None) -> DoctorFinding:
    with override_settings(DATA_DIR=data, SECRETS_DIR=data / "secrets"):
        every = findings(HOST, port or reserve_port())
    return next(each for each in every if each.subject.startswith(subject))


def test_a_machine_that_is_well_has_nothing_to_mend(data: Path) -> None:
    out = StringIO()
    with override_settings(DATA_DIR=data, SECRETS_DIR=data / "secrets"):
        call_command("doctor", port=reserve_port(), stdout=out)
    lines = out.getvalue().splitlines()
    assert len(lines) == 6 and all(line.startswith("ok ") for line in lines)


@pytest.mark.parametrize("version", [(3, 10), (3, 14)])
def test_another_python_is_told(version: tuple[int, int]) -> None:
    assert doctor._python(version).fix and not doctor._python((3, 11)).fix


def test_a_full_disk_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISK_MIB_MIN", 1 << 40)
    assert "SLUICE_DATA" in found(data, "disk").fix


def test_a_port_in_use_is_told_and_fails(data: Path) -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert "--port" in found(data, f"port {port}", port).fix
        with (
            override_settings(DATA_DIR=data, SECRETS_DIR=data / "secrets"),
            pytest.raises(CommandError, match="1 to mend"),
        ):
            call_command("doctor", port=port, stdout=StringIO())


def test_secrets_that_others_may_read_are_told(data: Path) -> None:
    (data / "secrets" / "django").chmod(0o644)
    finding = found(data, "secrets")
    assert "644" in finding.told and f"chmod 600 {data}/secrets/django" in finding.fix


def test_missing_programs_are_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: layout.Layout) -> Path:
        raise layout.LayoutError("Install it.")

    monkeypatch.setattr(doctor, "postgres_folder", missing)
    monkeypatch.setattr(doctor, "redis_program", missing)
    assert found(data, "PostgreSQL").fix == found(data, "Redis").fix == "Install it."


def test_servers_of_ones_own_are_asked(data: Path, database: str, redis_url: str) -> None:
    with override_settings(
        EMBEDDED_DATABASE=False, EMBEDDED_REDIS=False, REDIS_URL="redis://127.0.0.1:1"
    ):
        postgres, redis = found(data, "PostgreSQL"), found(data, "Redis")
    assert postgres.told.endswith("answers") and not postgres.fix
    assert "REDIS_URL" in redis.fix
