"""With DATABASE_URL and REDIS_URL set, the settings name those servers and no private one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from controlplane.embedded.redis_places import sentinels_of
from tests.support.tls import make_authority

PRINT = (
    "import json; from controlplane import settings as s; "
    "print(json.dumps({'db': s.DATABASES, 'redis': s.REDIS_URL, 'celery': s.CELERY_BROKER_URL, "
    "'tls': getattr(s, 'CELERY_BROKER_USE_SSL', None), "
    "'embedded': [s.EMBEDDED_DATABASE, s.EMBEDDED_REDIS]}))"
)


def read_settings(tmp_path: Path, **variables: str) -> dict[str, Any]:
    """What a fresh process reads; settings are made once per process."""
    result = subprocess.run(
        [sys.executable, "-c", PRINT],
        env={"PATH": os.environ["PATH"], "SLUICE_DATA": str(tmp_path / "var"), **variables},
        cwd=settings.BASE_DIR,
        capture_output=True,
        check=True,
    )
    facts: dict[str, Any] = json.loads(result.stdout)
    return facts


def test_urls_replace_the_private_servers(tmp_path: Path) -> None:
    facts = read_settings(
        tmp_path,
        DATABASE_URL="postgresql://sluice_app:p%40ss@db.example:6432/prod?sslmode=require",
        DATABASE_OWNER_URL="postgresql://boss:secret@db.example/prod",
        REDIS_URL="rediss://:pw@cache.example:6380/2",
    )
    app, owner, gateway = (facts["db"][alias] for alias in ("default", "owner", "gateway"))
    assert (app["HOST"], app["PORT"], app["NAME"]) == ("db.example", "6432", "prod")
    assert (app["USER"], app["PASSWORD"]) == ("sluice_app", "p@ss")
    assert app["OPTIONS"]["sslmode"] == "require"
    assert (owner["USER"], owner["PASSWORD"]) == ("boss", "secret")
    assert (gateway["HOST"], gateway["USER"]) == ("db.example", "sluice_gateway")
    secure = "rediss://:pw@cache.example:6380/2?ssl_cert_reqs=required"
    assert facts["redis"] == facts["celery"] == secure
    assert facts["embedded"] == [False, False]


def test_a_socket_folder_may_be_named_in_the_query(tmp_path: Path) -> None:
    url = "postgresql://sluice_app:pw@/prod?host=/srv/pg&port=5433&application_name=x"
    app = read_settings(tmp_path, DATABASE_URL=url)["db"]["default"]
    assert (app["HOST"], app["PORT"]) == ("/srv/pg", "5433")
    assert app["OPTIONS"] == {"connect_timeout": 5, "application_name": "x"}


def test_several_hosts_are_a_primary_and_its_standbys(tmp_path: Path) -> None:
    url = "postgresql://sluice_app:p%40ss@db1,[::1]:6432/prod"
    app = read_settings(tmp_path, DATABASE_URL=url)["db"]["default"]
    assert (app["HOST"], app["PORT"], app["PASSWORD"]) == ("db1,::1", "5432,6432", "p@ss")
    assert app["OPTIONS"]["target_session_attrs"] == "read-write"
    asked = read_settings(tmp_path, DATABASE_URL=f"{url}?target_session_attrs=primary")
    assert asked["db"]["default"]["OPTIONS"]["target_session_attrs"] == "primary"


def test_sentinels_are_named_with_their_master(tmp_path: Path) -> None:
    url = "redis+sentinel://:p%40ss@s1,s2:26380/main/2"
    facts = read_settings(tmp_path, REDIS_URL=url)
    assert facts["redis"] == url and not facts["embedded"][1]
    places = [f"sentinel://:p%40ss@{place}/2" for place in ("s1:26379", "s2:26380")]
    assert facts["celery"] == ";".join(places) and not facts["tls"]


def test_sentinels_may_have_a_login_of_their_own_and_tls(tmp_path: Path) -> None:
    ca = make_authority(tmp_path).ca
    rest = ":pw@s1/main?sentinel_username=u&sentinel_password=p%40ss"
    plain = sentinels_of(read_settings(tmp_path, REDIS_URL=f"redis+sentinel://{rest}")["redis"])
    assert plain and plain.asked == {"username": "u", "password": "p@ss"}
    assert plain.wanted == {"username": None, "password": "pw", "db": 0}
    facts = read_settings(tmp_path, REDIS_URL=f"rediss+sentinel://{rest}", SLUICE_CA_FILE=str(ca))
    tls = {"ssl_cert_reqs": "required", "ssl_ca_certs": str(ca)}
    secure = sentinels_of(facts["redis"])
    assert secure and facts["tls"] == secure.tls == tls
    assert secure.asked == {**plain.asked, "ssl": True, **tls}
    assert secure.wanted == {**plain.wanted, "ssl": True, **tls}
    loose = sentinels_of("rediss+sentinel://s1/main?ssl_check_hostname=false")
    assert loose and loose.tls == {"ssl_cert_reqs": "required", "ssl_check_hostname": False}


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis+sentinel://s1:26379", "must be redis+sentinel://"),
        ("redis+sentinel://s1/main?ssl_ca_certs=ca.pem", "takes no parameter ssl_ca_certs with"),
        ("rediss+sentinel://s1/main?ssl=1", "takes no parameter ssl with rediss+sentinel://"),
        ("rediss+sentinel://s1,/main", "must be rediss+sentinel://"),
        ("redis+sentinel://s1/main/two", "invalid literal"),
    ],
)
def test_sentinels_that_are_named_otherwise_are_refused(
    tmp_path: Path, url: str, told: str
) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        read_settings(tmp_path, REDIS_URL=url)
    assert f"ImproperlyConfigured: REDIS_URL: {told}" in failed.value.stderr.decode()


def test_without_urls_sockets_of_the_data_folder_are_used(tmp_path: Path) -> None:
    facts = read_settings(tmp_path)
    assert facts["db"]["default"]["HOST"].startswith("/")
    assert facts["redis"].startswith("unix://:")
    assert facts["celery"].startswith("redis+socket://:")
    assert facts["embedded"] == [True, True]
