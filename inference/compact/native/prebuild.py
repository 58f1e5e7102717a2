"""Builds the libraries of all instruction sets into prebuilt/, for machines without a compiler:
`python -m inference.compact.native.prebuild`. Those of another machine need a cross compiler.
"""

import platform
import shutil

from inference.compact.native.build import (
    FLAGS,
    INSTRUCTION_SETS,
    MACHINES,
    PREBUILT,
    build,
    find_compiler,
    prebuilt_path,
)


def main() -> None:
    """Raises `NativeUnavailable` where a compiler fails."""
    shutil.rmtree(PREBUILT, ignore_errors=True)
    PREBUILT.mkdir()
    for machine in MACHINES:
        own = machine == platform.machine()
        compiler = find_compiler() if own else shutil.which(f"{machine}-linux-gnu-gcc")
        if compiler is None:
            print(f"no compiler for {machine}")
            continue
        for isa in INSTRUCTION_SETS:
            if machine in isa.machines:
                path = prebuilt_path(isa, machine)
                build(compiler, (*FLAGS, *isa.flags), path)
                print(path.name)


if __name__ == "__main__":
    main()
