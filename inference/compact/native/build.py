"""Builds the C code with the machine's own compiler and keeps the result in the user's cache.

A build is named after its sources, flags, CPU and compiler, so it is made once on each machine.
Where there is no compiler, one that prebuild.py made of the same sources does as well.
"""

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from inference.compact.native.library import load_library

SOURCE = Path(__file__).parent
PREBUILT = SOURCE / "prebuilt"
FLAGS = ("-std=gnu11", "-O3", "-fno-strict-aliasing", "-shared", "-fPIC", "-pthread")
TUNED = "-mtune=native"
COMPILERS = ("cc", "gcc", "clang")
BUILD_SECONDS_MAX = 120
# Builds of past versions that are kept.
BUILDS_MAX = 8
PRIVATE = 0o700
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
X86, ARM = MACHINES = ("x86_64", "aarch64")
# Of Linux on x86-64, as its headers have them: a process must ask for the registers of AMX.
SYS_ARCH_PRCTL = 158
ARCH_REQ_XCOMP_PERM = 0x1023
XFEATURE_XTILEDATA = 18


@dataclass(frozen=True)
class InstructionSet:
    """What a build uses: flags that the CPU must have, as Linux names them, the compiler's, and
    the machines that there are builds for.
    """

    name: str
    needs: tuple[str, ...]
    flags: tuple[str, ...]
    machines: tuple[str, ...] = (X86,)


def _x86(name: str, *needs: str) -> InstructionSet:
    flags = (each.replace("_", "-" if each.startswith("amx") else "") for each in needs)
    return InstructionSet(name, needs, tuple(f"-m{flag}" for flag in flags))


_AVX2 = ("avx2", "fma", "bmi2")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
_VNNI = (*_AVX512, "avx512_vnni")
TILES = "amx_tile"
# From the best on; the last is for every CPU.
INSTRUCTION_SETS = (
    _x86("AMX-BF16", *_VNNI, "avx512_bf16", TILES, "amx_bf16"),
    _x86("AVX512-BF16", *_VNNI, "avx512_bf16"),
    _x86("AVX512-VNNI", *_VNNI),
    _x86("AVX-512", *_AVX512),
    _x86("AVX-VNNI", *_AVX2, "avx_vnni"),
    _x86("AVX2", *_AVX2),
    InstructionSet("NEON-BF16", ("asimd", "bf16"), ("-march=armv8.2-a+bf16",), (ARM,)),
    InstructionSet("generic", (), (), MACHINES),
)


class NativeUnavailable(Exception):
    """Why there is no native code on this machine, in words for the log."""


def instruction_sets() -> list[InstructionSet]:
    """Those that the CPU has and Linux grants, from the best on."""
    present = cpu_flags()
    if TILES in present and not tiles_granted():
        present -= {TILES}
    return [each for each in INSTRUCTION_SETS if present.issuperset(each.needs)]


@cache
def tiles_granted() -> bool:
    """Whether this process may use the tiles of AMX; asks Linux for them."""
    asked = (SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
    return not ctypes.CDLL(None).syscall(*map(ctypes.c_long, asked))


@cache
def native_library(isa: InstructionSet) -> ctypes.CDLL:
    """The built library, made now if need be; raises `NativeUnavailable`."""
    compiler = find_compiler()
    prebuilt = prebuilt_path(isa, platform.machine())
    if compiler is None and not prebuilt.exists():
        raise NativeUnavailable("no C compiler found; install gcc or clang")
    try:
        return _load(prebuilt) if compiler is None else _load(_built(compiler, isa))
    except OSError as error:
        # As where the disk is full or may only be read.
        raise NativeUnavailable(str(error)) from error


def prebuilt_path(isa: InstructionSet, machine: str) -> Path:
    """Where prebuild.py puts a library of these sources. It lies beside this module, so whoever
    can write there needs no library to run code.
    """
    return PREBUILT / f"{machine}-{isa.name}-{_digest(*FLAGS, *isa.flags)}.so"


def _built(compiler: str, isa: InstructionSet) -> Path:
    folder = _cache_folder()
    flags = (*FLAGS, TUNED, *isa.flags)
    parts = (*flags, *sorted(cpu_flags()), compiler, _run([compiler, "--version"]))
    path = folder / f"{_digest(*parts)}.so"
    if not path.exists():
        build(compiler, flags, path)
        _forget_old(folder, path)
    if _is_foreign(path):
        raise NativeUnavailable(f"{path} can be written by others")
    return path


def _load(path: Path) -> ctypes.CDLL:
    try:
        return load_library(path)
    except (OSError, AttributeError) as error:
        # As an unclean shutdown may leave it; the next start makes another.
        if path.parent != PREBUILT:
            path.unlink(missing_ok=True)
        raise NativeUnavailable(f"{path} cannot be loaded: {error}") from error


def cpu_flags() -> frozenset[str]:
    """Instruction sets of the CPU as Linux names them; empty where they cannot be known."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    found = (line.partition(":")[2] for line in lines if line.startswith(("flags", "Features")))
    return frozenset(next(found, "").split())


def find_compiler() -> str | None:
    """The machine's own, None without one."""
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def _digest(*parts: str) -> str:
    made_from = hashlib.sha256()
    for source in sorted(SOURCE.rglob("*.[ch]")):
        made_from.update(source.read_bytes())
    for part in parts:
        made_from.update(part.encode() + b"\0")
    return made_from.hexdigest()


def build(compiler: str, flags: tuple[str, ...], path: Path) -> None:
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
