"""Backups go to S3-compatible storage and come back from there, whole or not at all.

Run by `make test-stores`, which installs the server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from django.conf import settings
from obstore.store import S3Store

from inference.tls import CA_VARIABLE
from tests.support.loopback import HOST, reserve_port
from tests.support.money import rows
from tests.support.servers import make_data_folder
from tests.support.tls import NAME, make_authority, tls_front
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(400)

WEED = settings.BASE_DIR / ".stores/bin/weed"
KEY, SECRET, BUCKET, PREFIX = "an-access-key", "a-secret-key", "backups", "prod/eu"
PLACE = f"s3://{BUCKET}/{PREFIX}"
PASSPHRASE = "a passphrase of the tests only"


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server with a certificate of its own authority; the variables that lead there."""
    folder = tmp_path_factory.mktemp("weed")
    who = {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
           "actions": ["Admin", "Read", "Write", "List"]}  # fmt: skip
    (folder / "s3.json").write_text(json.dumps({"identities": [who]}))
    ports = {name: reserve_port() for name in ("s3", "master", "volume", "filer")}
    grpc = {f"{name}.port.grpc": reserve_port() for name in ports}
    flags = {
        "dir": folder, "ip": HOST, "ip.bind": HOST, "s3.config": folder / "s3.json",
        "master.volumeSizeLimitMB": 64, **{f"{name}.port": port for name, port in ports.items()},
        **grpc,
    }  # fmt: skip
    argv = [str(WEED), "server", "-s3", *(f"-{flag}={value}" for flag, value in flags.items())]
    authority = make_authority(folder)
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(argv, stdout=log, stderr=log, cwd=folder) as process,
        tls_front(authority, ports["s3"]) as port,
    ):
        variables = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "SLUICE_S3_ENDPOINT": f"https://{NAME}:{port}",
            CA_VARIABLE: str(authority.ca),
            "SLUICE_BACKUP_PASSPHRASE": PASSPHRASE,
        }
        try:
            wait_for(lambda: _made(ports["s3"]), "bucket")
            yield {**variables, "PORT": str(ports["s3"])}
        finally:
            process.kill()
            print((folder / "log").read_text()[-2_000:])


def _store(port: str | int) -> Any:
    return S3Store(
        BUCKET, endpoint=f"http://{HOST}:{port}", access_key_id=KEY, secret_access_key=SECRET,
        region="us-east-1", client_options={"allow_http": True}, retry_config={"max_retries": 0},
    )  # fmt: skip


def _made(port: int) -> bool:
    """Whether the server takes an object, which makes the bucket."""
    try:
        obstore.put(_store(port), "first", b"1")
    except obstore.exceptions.BaseError:
        return False
    return True


def sluice(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(settings.BASE_DIR / "manage.py"), "sluice", *arguments],
        env={**os.environ, **variables}, capture_output=True, text=True,
    )  # fmt: skip


def _keys(port: str) -> set[str]:
    return {each["path"] for page in obstore.list(_store(port), prefix=PREFIX) for each in page}


def test_a_backup_goes_there_and_comes_back_whole(storage: dict[str, str], database: str) -> None:
    kept = rows("SELECT count(*) FROM django_migrations")
    made = sluice("backup", PLACE, **storage)
    assert made.returncode == 0, made.stderr
    again = sluice("backup", PLACE, "--keep", "1", **storage)
    assert again.returncode == 0 and "removed sluice-" in again.stdout, again.stderr
    keys = _keys(storage["PORT"])
    (manifest,) = (key for key in keys if key.endswith("/manifest.json"))
    assert len({key.split("/")[2] for key in keys}) == 1
    assert not list(Path(settings.DATA_DIR).glob(".backup-*"))
    with make_data_folder() as folder:
        restored = sluice("restore", PLACE, **{**storage, "SLUICE_DATA": folder})
        assert restored.returncode == 0, restored.stdout + restored.stderr
        assert "verify_ledger and verify_audit find nothing" in restored.stdout
    assert kept == rows("SELECT count(*) FROM django_migrations")
    _spoil(storage["PORT"], manifest.replace("manifest.json", "database.dump"))
    with make_data_folder() as folder:
        refused = sluice("restore", PLACE, **{**storage, "SLUICE_DATA": folder})
    assert refused.returncode == 1 and "database.dump is damaged" in refused.stderr


def _spoil(port: str, key: str) -> None:
    """Another byte in the middle."""
    content = bytearray(obstore.get(_store(port), key).bytes())
    content[len(content) // 2] ^= 1
    obstore.put(_store(port), key, bytes(content))


@pytest.mark.parametrize(
    ("place", "changes", "told"),
    [
        ("s3://", {}, "must be like s3://bucket/prefix"),
        (f"s3://{BUCKET}/empty", {}, "is no backup and contains none"),
        (PLACE, {"AWS_SECRET_ACCESS_KEY": "wrong"}, f"{PLACE}: "),
        (PLACE, {CA_VARIABLE: ""}, f"{PLACE}: "),
    ],
)
def test_what_is_refused_is_said(
    place: str, changes: dict[str, str], told: str, storage: dict[str, str]
) -> None:
    with make_data_folder() as folder:
        refused = sluice("restore", place, **{**storage, "SLUICE_DATA": folder, **changes})
    assert refused.returncode == 1 and told in refused.stderr, refused.stderr
    assert "Traceback" not in refused.stderr
