"""PostgreSQL: one connection per role. Pages and jobs are `sluice_app`, migrations the owner."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from controlplane.core.database_roles import APP_ROLE, BACKUP_ROLE, GATEWAY_ROLE, OWNER_ROLE
from controlplane.embedded.layout import embedded_layout
from controlplane.settings import env
from controlplane.settings.paths import DATA_DIR
from controlplane.settings.secret_files import SECRETS_GIVEN, kept_secret, needed, passfile

DATABASE_NAME = "sluice"
CONNECT_SECONDS_MAX = 5
SCHEMES = ("postgres", "postgresql")
DEFAULT_PORT = 5_432
# Of several hosts the one that takes writes.
PRIMARY = "read-write"


@dataclass(frozen=True)
class DatabaseServer:
    """Where PostgreSQL listens: a host with its port, or the folder of a socket; or several of
    either, with commas.
    """

    host: str
    port: str
    name: str
    options: tuple[tuple[str, str], ...] = ()


def _server(url: SplitResult) -> DatabaseServer:
    name = url.path.lstrip("/")
    if not name:
        raise ImproperlyConfigured("A database's URL must name the database.")
    options = dict(parse_qsl(url.query))
    # Several hosts are a primary and its standbys, with a port each.
    places = [urlsplit(f"//{place}") for place in url.netloc.rpartition("@")[2].split(",")]
    ports = [str(place.port or DEFAULT_PORT) for place in places]
    host = ",".join(unquote(place.hostname or "") for place in places)
    port = ",".join(ports) if len(ports) > 1 or places[0].port else ""
    # A socket's folder cannot stand where a host name does, so libpq reads it from the query.
    host, port = host or options.pop("host", ""), port or options.pop("port", "")
    if "," in host:
        options.setdefault("target_session_attrs", PRIMARY)
    return DatabaseServer(host, port, name, tuple(options.items()))


def _connection(server: DatabaseServer, user: str, password: str) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": server.host,
        "PORT": server.port,
        "NAME": server.name,
        "USER": user,
        "PASSWORD": password,
        # Under ASGI each request has a thread of its own: a connection that outlived it would be
        # no one's, and stay open until it is collected.
        "CONN_MAX_AGE": 0,
        "OPTIONS": {"connect_timeout": CONNECT_SECONDS_MAX, **dict(server.options)},
    }


def _role(variable: str, role: str, file_name: str) -> dict[str, Any]:
    """A role's connection: its own URL where one is set, else a kept password on our server."""
    url = env.url(variable, SCHEMES)
    if url is None and SECRETS_GIVEN:
        return _connection(_default_server(), role, kept_secret(file_name))
    if url is None:
        made = _connection(_default_server(), role, "")
        made["OPTIONS"]["passfile"] = str(passfile(file_name))
        return made
    missing = SECRETS_GIVEN and url.password is None
    password = kept_secret(file_name) if missing else unquote(url.password or "")
    return _connection(_server(url), unquote(url.username or role), password)


def _default_server() -> DatabaseServer:
    url = env.url("DATABASE_URL", SCHEMES)
    if url is None:
        return DatabaseServer(str(embedded_layout(DATA_DIR).sockets), "", DATABASE_NAME)
    return _server(url)


# With no DATABASE_URL, `manage.py sluice run` starts a private server in the data folder.
EMBEDDED_DATABASE = env.url("DATABASE_URL", SCHEMES) is None
# Django asks for a default one; empty, it connects nowhere.
DATABASES: dict[str, Any] = {"default": {}}
if needed("web", "worker", "connector", "setup"):
    DATABASES["default"] = _role("DATABASE_URL", APP_ROLE, "postgres-app")
if needed("setup"):
    DATABASES["owner"] = _role("DATABASE_OWNER_URL", OWNER_ROLE, "postgres-owner")
    if env.url("DATABASE_BACKUP_URL", SCHEMES) is not None:
        # Sees every row, whatever the policies, and writes none.
        DATABASES["backup"] = _role("DATABASE_BACKUP_URL", BACKUP_ROLE, "postgres-backup")
if needed("gateway", "setup"):
    DATABASES["gateway"] = _role("DATABASE_GATEWAY_URL", GATEWAY_ROLE, "postgres-gateway")
# Where that archives its write-ahead log, for recovery to an instant; nowhere unless it is named.
_ARCHIVE = env.text("SLUICE_WAL_ARCHIVE")
WAL_ARCHIVE = Path(_ARCHIVE).expanduser().absolute() if _ARCHIVE else None
# The server of `s3://` addresses; that of Amazon where it is not named.
S3_ENDPOINT = env.address("SLUICE_S3_ENDPOINT", ("https", "http"), chars_max=255)
# The private server's superuser; it makes the roles and serves nothing else.
SUPERUSER_PASSWORD = kept_secret("postgres-superuser") if EMBEDDED_DATABASE and needed() else ""
