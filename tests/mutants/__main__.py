"""Tries each mutant in a copy of the tree: `python -m tests.mutants [words of names]`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.table import MUTANTS, ROOT, Mutant

# pytest's status where a test has failed; any other says that none was run.
FAILED = 1
SECONDS_MAX = 300


def main(words: list[str]) -> int:
    """Prints what became of each; 1 where one survived, or could not be tried."""
    chosen = [each for each in MUTANTS if all(word in each.name for word in words)]
    alive = []
    with tempfile.TemporaryDirectory(prefix="sluice-mutants-") as folder:
        copy_tree(Path(folder))
        for mutant in chosen:
            began_s = time.monotonic()
            told = tried(mutant, Path(folder))
            print(f"{told:9} {time.monotonic() - began_s:5.1f} s  {mutant}", flush=True)
            alive += [] if told == "killed" else [mutant.name]
    print(f"{len(chosen) - len(alive)} of {len(chosen)} killed", *alive, sep="\n  ")
    return bool(alive)


def copy_tree(folder: Path) -> None:
    """All that is tracked, or about to be, as it stands."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())


def tried(mutant: Mutant, folder: Path) -> str:
    """`killed`, `survived`, or why it was not tried."""
    path = folder / mutant.file
    text = path.read_text()
    path.write_text(text.replace(mutant.before, mutant.after))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests],
            cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "hung"
    finally:
        path.write_text(text)
    if done.returncode not in (0, FAILED):
        print(done.stdout[-2_000:], done.stderr[-2_000:])
        return "not tried"
    return "killed" if done.returncode == FAILED else "survived"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
