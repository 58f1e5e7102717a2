"""Builds the C code with the machine's own compiler and keeps the result in the user's cache.

A build is named after its sources, flags, CPU and compiler, so it is made once on each machine.
"""

import contextlib
import ctypes
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from inference.compact.native.library import load_library

SOURCE = Path(__file__).parent
FLAGS = (
    "-std=gnu11", "-O3", "-march=native", "-fno-strict-aliasing", "-shared", "-fPIC", "-pthread",
)  # fmt: skip
COMPILERS = ("cc", "gcc", "clang")
BUILD_SECONDS_MAX = 120
# Builds of past versions that are kept.
BUILDS_MAX = 4
PRIVATE = 0o700
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NativeUnavailable(Exception):
    """Why there is no native code on this machine, in words for the log."""


@cache
def native_library() -> ctypes.CDLL:
    """The built library, made now if need be; raises `NativeUnavailable`."""
    try:
        return _load(_built())
    except OSError as error:
        # As where the disk is full or may only be read.
        raise NativeUnavailable(str(error)) from error


def _built() -> Path:
    folder = _cache_folder()
    compiler = _compiler()
    path = folder / f"{_digest(compiler)}.so"
    if not path.exists():
        _build(compiler, path)
        _forget_old(folder, path)
    if _is_foreign(path):
        raise NativeUnavailable(f"{path} can be written by others")
    return path


def _load(path: Path) -> ctypes.CDLL:
    try:
        return load_library(path)
    except (OSError, AttributeError) as error:
        # As an unclean shutdown may leave it; the next start makes another.
        path.unlink(missing_ok=True)
        raise NativeUnavailable(f"{path} cannot be loaded: {error}") from error


def cpu_flags() -> frozenset[str]:
    """Instruction sets of the CPU as Linux names them; empty where they cannot be known."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    found = (line.partition(":")[2] for line in lines if line.startswith("flags"))
    return frozenset(next(found, "").split())


def _compiler() -> str:
    for name in COMPILERS:
        found = shutil.which(name)
        if found is not None:
            return found
    raise NativeUnavailable(f"no C compiler found ({', '.join(COMPILERS)})")


def _digest(compiler: str) -> str:
    made_from = hashlib.sha256()
    for source in sorted([*SOURCE.glob("*.c"), *SOURCE.glob("*.h")]):
        made_from.update(source.read_bytes())
    version = _run([compiler, "--version"])
    for part in (*FLAGS, *sorted(cpu_flags()), compiler, version):
        made_from.update(part.encode() + b"\0")
    return made_from.hexdigest()


def _build(compiler: str, path: Path) -> None:
    """Compile next to the target and rename, so that half a library is never seen."""
    handle, made = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    os.close(handle)
    try:
        _run([compiler, *FLAGS, "-o", made, str(SOURCE / "step.c"), "-lm"])
        os.chmod(made, PRIVATE)
        os.replace(made, path)
    finally:
        Path(made).unlink(missing_ok=True)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=True
        )
    except subprocess.CalledProcessError as error:
        raise NativeUnavailable(f"{command[0]} failed: {_first_line(error.stderr)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeUnavailable(f"{command[0]}: {error}") from error
    return done.stdout


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if "error" in line), text.strip()[:200])


def _cache_folder() -> Path:
    """A folder that only this user can write to: what lies in it is executed."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:
        raise NativeUnavailable(f"no folder for builds: {error}") from error
    folder = base / "sluice"
    folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    if _is_foreign(folder):
        raise NativeUnavailable(f"{folder} can be written by others")
    return folder


def _is_foreign(path: Path) -> bool:
    status = path.lstat()
    return (
        status.st_uid != os.geteuid()
        or bool(status.st_mode & OTHERS_WRITE)
        or stat.S_ISLNK(status.st_mode)
    )


def _forget_old(folder: Path, present: Path) -> None:
    others = [path for path in folder.glob("*.so") if path != present]
    # Another node that starts at this moment may be tidying up, too.
    with contextlib.suppress(FileNotFoundError):
        others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in others[BUILDS_MAX:]:
            path.unlink()
