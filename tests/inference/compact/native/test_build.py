"""Building the native code: once per machine, in a private folder, with a reason where it fails."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import tempfile
from pathlib import Path

import pytest

from inference.compact.native import build, prebuild
from inference.compact.native.build import InstructionSet, NativeUnavailable
from inference.compact.native.trial import agrees

pytestmark = pytest.mark.processes  # A compiler.
AVX512 = "avx2 fma bmi2 avx512f avx512bw avx512dq avx512vl"
WARNINGS = ("-Wall", "-Wextra", "-Werror")
TARGET = 'while [ "$1" != -o ]; do [ $# = 0 ] && exit; shift; done;'


def make(isa: InstructionSet | None = None) -> ctypes.CDLL:
    """A library of the CPU's best instruction set, or of this one, found or made anew."""
    return build.native_library.__wrapped__(isa or build.instruction_sets()[0])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code, really built."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        make()
        (built,) = Path(os.environ["XDG_CACHE_HOME"], "sluice").iterdir()
    return built


@pytest.fixture
def folder(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where builds go in this test; its compiler takes no time, for it copies what was built."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _compiler_that(tmp_path, monkeypatch, f'{TARGET} cp {library} "$2"')
    return tmp_path / "sluice"


def _compiler_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a compiler of ours, and nothing else that could be one, before the real ones."""
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    compiler = tools / "cc"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")


def test_it_is_built_once(folder: Path) -> None:
    make()
    (built,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert built.stat().st_mode & 0o777 == 0o700
    before = built.stat()
    make()
    (again,) = folder.iterdir()
    assert (again.stat().st_ino, again.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_another_compiler_makes_another_build(
    folder: Path, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make()
    script = f'[ "$1" = --version ] && echo newer; {TARGET} cp {library} "$2"'
    _compiler_that(tmp_path, monkeypatch, script)
    make()
    assert len(list(folder.glob("*.so"))) == 2


def test_only_a_few_old_builds_are_kept(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    for age in range(build.BUILDS_MAX + 3):
        old = folder / f"{age}.so"
        old.touch()
        os.utime(old, (1000 - age, 1000 - age))
    make()
    kept = {path.name for path in folder.glob("*.so") if path.stat().st_size == 0}
    assert kept == {f"{age}.so" for age in range(build.BUILDS_MAX)}
    assert len(list(folder.iterdir())) == build.BUILDS_MAX + 1


def test_an_old_build_that_another_node_removes_hinders_nobody(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "gone.so").symlink_to(folder / "nothing")
    make()


def test_a_folder_that_cannot_be_made(folder: Path, tmp_path: Path) -> None:
    folder.write_text("in the way")
    with pytest.raises(NativeUnavailable, match=str(folder)):
        make()


def test_a_build_that_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is too long stands for a disk that may only be read: root may write anywhere."""
    monkeypatch.setattr(tempfile, "template", "x" * 300)
    with pytest.raises(NativeUnavailable, match="too long"):
        make()


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 2)
    with pytest.raises(NativeUnavailable, match="no folder for builds"):
        make()


def test_a_folder_that_others_can_write_to_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(NativeUnavailable, match="can be written by others"):
        make()
    assert list(folder.iterdir()) == []


def test_a_build_that_others_can_write_to_is_refused(folder: Path) -> None:
    make()
    (built,) = folder.iterdir()
    built.chmod(0o777)
    with pytest.raises(NativeUnavailable, match="can be written by others"):
        make()


def test_a_build_behind_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    make()
    (built,) = folder.iterdir()
    elsewhere = built.rename(tmp_path / "elsewhere.so")
    built.symlink_to(elsewhere)
    with pytest.raises(NativeUnavailable, match="can be written by others"):
        make()


def test_a_build_that_is_no_library_is_named_and_not_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _compiler_that(tmp_path, monkeypatch, f'{TARGET} echo nonsense > "$2"')
    with pytest.raises(NativeUnavailable, match="cannot be loaded"):
        make()
    assert list(folder.iterdir()) == []


def test_no_compiler(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build, "PREBUILT", tmp_path)
    with pytest.raises(NativeUnavailable, match="no C compiler found"):
        make()


@pytest.mark.timeout(300)
def test_without_a_compiler_a_prebuilt_library_of_these_sources_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One instruction set stands for all, since each takes the compiler seconds."""
    last = build.INSTRUCTION_SETS[-1]
    prebuilt = tmp_path / "prebuilt"
    for module in (build, prebuild):
        monkeypatch.setattr(module, "PREBUILT", prebuilt)
    monkeypatch.setattr(prebuild, "INSTRUCTION_SETS", (last,))
    prebuild.main()
    made = {path.name.rpartition("-")[0] for path in prebuilt.iterdir()}
    assert made == {f"{machine}-{last.name}" for machine in build.MACHINES}
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert agrees(make(last))
    assert not (tmp_path / "cache").exists()
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-DOTHER"))
    with pytest.raises(NativeUnavailable, match="no C compiler found"):
        make(last)


@pytest.mark.parametrize("isa", build.INSTRUCTION_SETS, ids=lambda each: each.name)
def test_the_compiler_warns_of_nothing(isa: InstructionSet) -> None:
    for machine in isa.machines:
        command = [f"{machine}-linux-gnu-gcc", *build.FLAGS, *isa.flags, *WARNINGS]
        source = str(build.SOURCE / "step.c")
        subprocess.run([*command, "-O0", "-fsyntax-only", source], check=True)


def test_a_prebuilt_library_that_cannot_be_loaded_is_named_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "PREBUILT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    path = build.prebuilt_path(build.instruction_sets()[0], platform.machine())
    path.write_text("nonsense")
    with pytest.raises(NativeUnavailable, match="cannot be loaded"):
        make()
    assert path.exists()


def test_a_failing_compiler(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = '[ "$1" = --version ] || { echo "step.c:1: error: bad luck" >&2; exit 1; }'
    _compiler_that(tmp_path, monkeypatch, script)
    with pytest.raises(NativeUnavailable, match=r"failed: step\.c:1: error: bad luck"):
        make()
    assert list(folder.iterdir()) == []


def test_a_compiler_that_hangs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "BUILD_SECONDS_MAX", 0.2)
    _compiler_that(tmp_path, monkeypatch, "exec sleep 60")
    with pytest.raises(NativeUnavailable, match="timed out"):
        make()


BF16 = ["AVX512-BF16", "AVX512-VNNI", "AVX-512", "AVX2", "generic"]


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ("sse2", ["generic"]),
        ("avx2", ["generic"]),
        ("avx2 fma bmi2", ["AVX2", "generic"]),
        ("avx2 fma bmi2 avx_vnni", ["AVX-VNNI", "AVX2", "generic"]),
        (AVX512, ["AVX-512", "AVX2", "generic"]),
        (f"{AVX512} avx512_vnni", BF16[1:]),
        (f"{AVX512} avx512_vnni avx512_bf16", BF16),
        (f"{AVX512} avx512_vnni avx512_bf16 amx_tile", BF16),
        (f"{AVX512} avx512_vnni avx512_bf16 amx_tile amx_bf16", ["AMX-BF16", *BF16]),
        ("fp asimd asimddp", ["generic"]),
        ("fp asimd asimddp bf16", ["NEON-BF16", "generic"]),
    ],
)
def test_the_best_instruction_set_of_the_cpu_comes_first(
    flags: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "cpu_flags", lambda: frozenset(flags.split()))
    monkeypatch.setattr(build, "tiles_granted", lambda: True)
    assert [each.name for each in build.instruction_sets()] == names


def test_each_instruction_set_has_a_build_with_flags_of_its_own(
    folder: Path, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    monkeypatch.setattr(build, "BUILDS_MAX", len(build.INSTRUCTION_SETS))
    _compiler_that(tmp_path, monkeypatch, f'echo "$@" >> {calls}; {TARGET} cp {library} "$2"')
    for isa in build.INSTRUCTION_SETS:
        make(isa)
    assert len(list(folder.glob("*.so"))) == len(build.INSTRUCTION_SETS)
    built = [line for line in calls.read_text().splitlines() if "step.c" in line]
    assert ["-mamx-tile -mamx-bf16" in line for line in built] == [True] + 7 * [False]
    assert ["-mavx512bf16" in line for line in built] == 2 * [True] + 6 * [False]
    assert ["-mavx512f" in line for line in built] == 4 * [True] + 4 * [False]
    assert ["-mavxvnni" in line for line in built] == 4 * [False] + [True] + 3 * [False]
    assert ["-mfma" in line for line in built] == 6 * [True] + 2 * [False]
    assert ["-march" in line for line in built] == 6 * [False] + [True, False]


def test_tiles_that_linux_does_not_grant_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {*AVX512.split(), "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16"}
    monkeypatch.setattr(build, "cpu_flags", lambda: frozenset(flags))
    monkeypatch.setattr(build, "tiles_granted", lambda: False)
    assert [each.name for each in build.instruction_sets()] == BF16


def test_linux_is_asked_for_tiles() -> None:
    """It refuses them exactly where the CPU has none."""
    assert build.tiles_granted() == (build.TILES in build.cpu_flags())


@pytest.mark.parametrize("key", ["flags\t\t", "Features\t"])
def test_flags_of_x86_and_of_arm(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = f"processor\t: 0\n{key}: fp one two\n\nprocessor\t: 1\n{key}: fp three\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: shown)
    assert build.cpu_flags() == {"fp", "one", "two"}
