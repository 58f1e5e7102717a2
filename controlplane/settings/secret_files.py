"""Secrets of this installation: from the environment, or made at first use and kept mode 0600.

Several hosts that serve one database must share them, so each has its environment variable; or a
folder is named in which each process finds those that it needs, and none is made. What a process'
role does not need is no setting there at all, so that using it is an error.
"""

import os
import secrets
import tempfile
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from controlplane.settings import env
from controlplane.settings.base import SLUICE_ROLE
from controlplane.settings.paths import DATA_DIR, SECRETS_DIR

# 64 characters: Django asks for 50 at least.
SECRET_BYTES = 48
SECRET_CHARS_MIN = 32
# Filled by who starts the process.
SECRETS_GIVEN = bool(env.text("SLUICE_SECRETS"))
# Secrets that this process was given in variables, by the file's name: files of these are not read.
FROM_VARIABLES: dict[str, str] = {}
# Earlier values of a secret that is being replaced, one a line, beside its file.
BEFORE = ".before"
PASSFILE = ".pgpass"


def needed(*roles: str) -> bool:
    """Whether this process is one of these, or all of them."""
    return SLUICE_ROLE in ("all", *roles)


def secret(variable: str, file_name: str) -> str:
    """The secret named by an environment variable, else the one kept in the data folder."""
    value = env.text(variable)
    if not value:
        return kept_secret(file_name)
    if len(value) < SECRET_CHARS_MIN:
        raise ImproperlyConfigured(f"{variable} must have at least {SECRET_CHARS_MIN} characters.")
    FROM_VARIABLES[file_name] = variable
    return value


def secrets_before(variable: str, file_name: str) -> tuple[str, ...]:
    """Earlier values that count beside the present one until they are forgotten, newest first."""
    if given := env.words(f"{variable}_BEFORE"):
        return given
    file = SECRETS_DIR / f"{file_name}{BEFORE}"
    # A variable and a file are of two installations: the file's would be another's secrets.
    if file_name in FROM_VARIABLES or not file.exists():
        return ()
    return tuple(file.read_text().split())


def bytes_before(variable: str, file_name: str) -> tuple[bytes, ...]:
    return tuple(each.encode() for each in secrets_before(variable, file_name))


def kept_secret(file_name: str) -> str:
    """Read a secret, making it first where it is missing; two processes get the same one."""
    file = SECRETS_DIR / file_name
    if not file.exists():
        if SECRETS_GIVEN:
            raise ImproperlyConfigured(f"{file} is missing; where SLUICE_SECRETS is set, give it.")
        _make_folders(file.parent)
        _publish(file, secrets.token_urlsafe(SECRET_BYTES))
    value = file.read_text().strip()
    if len(value) < SECRET_CHARS_MIN:
        raise ImproperlyConfigured(f"{file} holds no secret; restore it or remove the file.")
    return value


def passfile(file_name: str) -> Path:
    """A file for PostgreSQL's clients with a kept password: they read it anew with each connection,
    so that a process that is running already comes in with a password that was changed.
    """
    file = SECRETS_DIR / f"{file_name}{PASSFILE}"
    line = f"*:*:*:*:{kept_secret(file_name)}\n"
    if not file.exists() or file.read_text() != line:
        replace_private(file, line)
    return file


def replace_private(file: Path, text: str) -> None:
    """Give a file of mode 0600 another content, whole at once."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".new-")
    with os.fdopen(handle, "w") as out:
        out.write(text)
    os.replace(name, file)


def _make_folders(folder: Path) -> None:
    if not DATA_DIR.exists():
        # Whatever the umask. For root, the databases' account must get through to its own folders;
        # no one may list it. A folder that is there already stays as the operator made it.
        DATA_DIR.mkdir(parents=True)
        DATA_DIR.chmod(0o711 if os.geteuid() == 0 else 0o700)
    folder.mkdir(mode=0o700, exist_ok=True)


def _publish(file: Path, value: str) -> None:
    # Written in full under another name and then linked: whoever links second keeps the first.
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "w") as out:
            out.write(value + "\n")
        try:
            os.link(name, file)
        except FileExistsError:
            return
    finally:
        os.unlink(name)
