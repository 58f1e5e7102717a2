"""Log files of nodes: each is bounded, and so is the number of those whose replica is gone."""

import contextlib
import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO

# Of one file; what came before that is in a second one, which is no longer.
LOG_BYTES_MAX = 20 << 20
# Of replicas that are gone, the newest.
OLD_LOGS_MAX = 20
LOG_MODE = 0o600
TAIL_BYTES = 2_000
SUFFIX, BEFORE = ".log", ".log.1"


def log_open(log: Path) -> BinaryIO:
    """The file to write to; only its owner can read it."""
    return os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, LOG_MODE), "ab")


def log_cut(log: Path) -> None:
    """Move what is in a log that is too long to the second file, while its node writes on."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > LOG_BYTES_MAX:
            shutil.copy(log, log.with_suffix(BEFORE))
            os.truncate(log, 0)


def log_tail(log: Path) -> str:
    """The last line; empty where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def logs_prune(folder: Path, used: Collection[str]) -> None:
    """Delete the oldest logs of replicas other than these, by id, until few enough are left."""
    logs = [log for log in folder.glob(f"*{SUFFIX}") if log.stem not in used]
    logs.sort(key=lambda log: log.stat().st_mtime, reverse=True)
    for log in logs[OLD_LOGS_MAX:]:
        log.unlink()
        log.with_suffix(BEFORE).unlink(missing_ok=True)
