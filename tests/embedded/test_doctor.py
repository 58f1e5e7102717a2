"""`sluice doctor`: every finding says what is, and where it is wrong what to do."""

from __future__ import annotations

import os
import secrets
import socket
import time
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from controlplane.embedded import doctor, layout
from controlplane.embedded.doctor import DoctorFinding, findings
from tests.support.loopback import HOST, reserve_port

STRONG = "abcdefghijklmnopqrstuvwxyz0123456789-of-tests"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir(mode=0o700)
    keep(tmp_path, "django", secrets.token_urlsafe(48))
    return tmp_path


def keep(data: Path, name: str, value: str, *, days: int = 0) -> None:
    file = data / "secrets" / name
    file.touch(mode=0o600)
    file.write_text(value)
    then = time.time() - days * doctor.DAY_S
    os.utime(file, (then, then))


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


@pytest.mark.parametrize(
    ("name", "value", "days", "told"),
    [
        ("factor-key", "short", 0, "factor-key is weak"),
        ("factor-key", "ab" * 40, 0, "factor-key is weak"),
        ("key-pepper", "", 0, "key-pepper is the same as django"),
        ("redis", STRONG, 400, "redis is 400 days old"),
        ("redis.before", STRONG, 40, "an earlier value beside it for 40 days"),
    ],
)
def test_weak_shared_and_old_secrets_are_told(
    data: Path, name: str, value: str, days: int, told: str
) -> None:
    keep(data, name, value or (data / "secrets" / "django").read_text(), days=days)
    finding = found(data, "secrets")
    assert told in finding.told
    assert ("secrets settle redis" if "before" in name else f"rotate {name}") in finding.fix


def test_an_empty_file_of_earlier_values_is_no_overlap(data: Path) -> None:
    keep(data, "redis.before", "", days=40)
    assert "earlier value" not in found(data, "secrets").told


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
