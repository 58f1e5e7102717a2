"""Builds the C code with the machine's own compiler and keeps the result in the user's cache.

The instruction set is the best of those that the CPU has and isa/ has a header for. A build is
named after its sources, flags, CPU and compiler, so it is made once on each machine.
Whether a machine and a model can use it is said here, too. Imports no torch.
"""

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from inference.compact.config.shape import ModelShape
from inference.compact.native.library import load_library

SOURCE = Path(__file__).parent
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-mtune=native",
    "-fno-strict-aliasing",
    "-shared",
    "-fPIC",
    "-pthread",
)
COMPILERS = ("cc", "gcc", "clang")
BUILD_SECONDS_MAX = 120
# Builds of past versions that are kept.
BUILDS_MAX = 8
PRIVATE = 0o700
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
MACHINES = ("x86_64", "aarch64")
BLOCK_SIZE = 32
# As step.c and attention.h have them.
VECTOR = 16
HEAD_DIM_MAX = 256
SHARING_MAX = 64


@dataclass(frozen=True)
class InstructionSet:
    """What a build uses: flags that the CPU must have, as Linux names them, and the compiler's."""

    name: str
    needs: tuple[str, ...]
    flags: tuple[str, ...]


_AVX512 = ("avx2", "fma", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl")
# From the best on; the last is for every CPU.
INSTRUCTION_SETS = tuple(
    InstructionSet(name, needs, tuple(f"-m{flag.replace('_', '')}" for flag in needs))
    for name, needs in (
        ("AVX512-BF16", (*_AVX512, "avx512_bf16", "avx512_vnni")),
        ("AVX512-VNNI", (*_AVX512, "avx512_vnni")),
        ("AVX-512", _AVX512),
        ("AVX-VNNI", (*_AVX512[:3], "avx_vnni")),
        ("AVX2", _AVX512[:3]),
        ("generic", ()),
    )
)


class NativeUnavailable(Exception):
    """Why there is no native code on this machine, in words for the log."""


def instruction_sets() -> list[InstructionSet]:
    """Those that the CPU has, from the best on."""
    present = cpu_flags()
    return [each for each in INSTRUCTION_SETS if present.issuperset(each.needs)]


@cache
def native_library(isa: InstructionSet | None = None) -> ctypes.CDLL:
    """The built library, by default for the CPU's best instruction set, made now if need be; raises
    `NativeUnavailable`.
    """
    try:
        return _load(_built(isa or instruction_sets()[0]))
    except OSError as error:
        # As where the disk is full or may only be read.
        raise NativeUnavailable(str(error)) from error


def _built(isa: InstructionSet) -> Path:
    folder = _cache_folder()
    compiler = _compiler()
    flags = (*FLAGS, *isa.flags)
    path = folder / f"{_digest(compiler, flags)}.so"
    if not path.exists():
        _build(compiler, flags, path)
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
    raise NativeUnavailable("no C compiler found; install gcc or clang")


def _digest(compiler: str, flags: tuple[str, ...]) -> str:
    made_from = hashlib.sha256()
    for source in sorted(SOURCE.rglob("*.[ch]")):
        made_from.update(source.read_bytes())
    version = _run([compiler, "--version"])
    for part in (*flags, *sorted(cpu_flags()), compiler, version):
        made_from.update(part.encode() + b"\0")
    return made_from.hexdigest()


def _build(compiler: str, flags: tuple[str, ...], path: Path) -> None:
    """Compile next to the target and rename, so that half a library is never seen."""
    handle, made = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    os.close(handle)
    try:
        _run([compiler, *flags, "-o", made, str(SOURCE / "step.c"), "-lm"])
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


def reason_against(shape: ModelShape, block_size: int) -> str | None:
    """Why the native step cannot be used, or None; builds the library to find out."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        return f"it is written for Linux on {' or '.join(MACHINES)}"
    reason = _reason_of_shape(shape, block_size)
    if reason is not None:
        return reason
    try:
        native_library()
    except NativeUnavailable as error:
        return str(error)
    return None


def _reason_of_shape(shape: ModelShape, block_size: int) -> str | None:
    if block_size != BLOCK_SIZE:
        return f"block_size is {block_size}, not {BLOCK_SIZE}"
    if shape.experts is not None:
        return "the model has experts"
    if shape.heads // shape.kv_heads > SHARING_MAX:
        return f"more than {SHARING_MAX} query heads share a key head"
    if shape.head_dim > HEAD_DIM_MAX:
        return f"head_dim is above {HEAD_DIM_MAX}"
    for field in ("hidden_size", "intermediate_size", "head_dim"):
        # The rows of x are added to in whole panels of two vectors.
        step = 2 * VECTOR if field == "hidden_size" else VECTOR
        if getattr(shape, field) % step:
            return f"{field} is not a multiple of {step}"
    return None
