"""Files of results: what a command printed, of which commit and on which machine.

Each `make bench-NAME` writes its own as `benchmarks/results/NAME-DATE-COMMIT.json`, once it has
printed its last line; nobody edits one. Of a tree with changes that no commit has, nothing can be
told later: such a file goes to `var/results`.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.machine import cpu_flags, cpu_model, versions

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "results"
SCRATCH = ROOT / "var" / "results"
COMMIT_CHARS = 10
WHY = "why_"
SPREAD = "_spread"
# What the last line of each command holds at least.
KEYS: Mapping[str, tuple[str, ...]] = {
    "gateway": (
        "cpu_ms_per_request", "control_cpu_ms_per_request", "ratio_to_control",
        "cpu_us_per_paced_token", "control_cpu_us_per_paced_token", "streams_per_s",
        "added_p50_ms_c1", "added_ttft_ms", "rss_mib_idle", "features_on", "stages_us",
        "stream_cpu_x_whole", "shapes", "features", "added_itl_p99_ms", "two_gateways",
    ),
    "interpreters": ("interpreters",),
    "reference": ("model", "engine", "widths"),
    "engine": (
        "reference", "isa", "llama_cpp", "short_beside_long_p95_ratio", "offline_256",
        "second_ttft_ratio", "bandwidth_share_100m", "busy_neighbour", "leaked_blocks",
        "kv_pool_exceeded_bytes",
    ),
    "fleet": ("workloads", "decision_us", "gateways_4_p95_ratio", "held_out"),
    "fleet-links": ("links",),
    "faults": ("faults", "cancel_to_free_p99_ms"),
    "money": (
        "hold_settle_per_s", "hot_row_per_s", "open_4000_p99_ms", "gateway_cpu_ms",
        "postgres_cpu_ms", "hold_p50_ms_c1", "settle_p50_ms_c1", "hot_hold_p50_ms_fsync_plus_5ms",
        "recovery_after_kill_s", "race", "kills",
    ),
    "telemetry": (
        "record_cpu_us", "mib_10k_series", "page_30d_cpu_ms", "page_1h_cpu_ms", "interactive_s",
        "charts_first_s", "charts_repeat_s", "max_relative_error",
    ),
    "soak": (
        "minutes", "faults", "requests", "lost", "doubled", "hung", "difference_nano_usd",
        "rss_growth_mib", "fd_growth", "recovery_s",
    ),
    "routing": ("workload", "runs", "hit_of_possible_min", "ttft_p50_ratio_max"),
    "attached": (
        "hit_rate_x_compact", "ttft_p50_x_round_robin", "added_ttft_p99_ms", "difference_nano_usd",
    ),
    "load": ("sent_per_s", "failed", "cpu_share", "sent_late_p99_ms", "ours_to_vllm"),
    "batch": ("p95_ttft_rise", "lines", "lost", "doubled"),
    "gpu": ("device", "decode", "prefill", "reference"),
    "exports": ("requests", "files"),
}  # fmt: skip


class Machine(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What it ran on; the load is that of one minute, before and after."""

    cpu: str
    flags: list[str]
    cores: int
    kernel: str
    load_before: float
    load_after: float
    versions: dict[str, str]


class Result(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A file. `printed` is the last line as it was printed, `passes` what its figures come from."""

    name: str
    commit: str
    changed: bool
    began: str
    seconds: float
    machine: Machine
    parameters: dict[str, Any]
    passes: dict[str, list[Any]]
    printed: str
    digest: str = ""

    def digest_of(self) -> str:
        """Of everything else in the file."""
        bare = msgspec.structs.replace(self, digest="")
        return hashlib.sha256(msgspec.json.encode(bare, order="sorted")).hexdigest()


class Recorder:
    """Keeps the passes of one run of a command, and writes its file."""

    def __init__(self, name: str, **parameters: Any) -> None:
        self._name = name
        self._parameters = parameters
        self._began = datetime.now(UTC)
        self._began_s = time.monotonic()
        self._load_before = os.getloadavg()[0]
        self.passes: dict[str, list[Any]] = {}

    def keep(self, what: str, figures: Any) -> None:
        """One more pass of something."""
        self.passes.setdefault(what, []).append(figures)

    def medians(self, what: str, digits: int = 3) -> dict[str, Any]:
        """Of each figure of its passes, with the spread beside it."""
        rows: Sequence[Mapping[str, float]] = self.passes[what]
        made: dict[str, Any] = {}
        for key in rows[0]:
            made |= spread(key, [row[key] for row in rows], digits)
        return made

    def finish(self, figures: Mapping[str, Any]) -> Path:
        """Print the last line and write the file; raises ValueError where a figure is missing."""
        problem = keys_problem(self._name, figures)
        if problem:
            raise ValueError(problem)
        commit, changed = commit_now()
        line = json.dumps(figures)
        machine = Machine(
            cpu=cpu_model(),
            flags=cpu_flags(),
            cores=os.cpu_count() or 1,
            kernel=platform.release(),
            load_before=round(self._load_before, 2),
            load_after=round(os.getloadavg()[0], 2),
            versions=versions(),
        )
        made = Result(
            name=self._name,
            commit=commit,
            changed=changed,
            began=self._began.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - self._began_s, 1),
            machine=machine,
            parameters=self._parameters,
            passes=msgspec.json.decode(msgspec.json.encode(self.passes)),
            printed=line,
        )
        made.digest = made.digest_of()
        path = _path(made)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
        print(f"written: {path.relative_to(ROOT)}")
        print(line, flush=True)
        return path


def spread(key: str, values: Sequence[float], digits: int = 3) -> dict[str, Any]:
    """The median under this key, and beside it the least and the most of the passes."""
    known = [value for value in values if value == value]
    if not known:
        return {key: None, WHY + key: "no pass gave a value"}
    least_most = [round(min(known), digits), round(max(known), digits)]
    return {key: round(statistics.median(known), digits), key + SPREAD: least_most}


def keys_problem(name: str, figures: Mapping[str, Any]) -> str:
    """What a last line lacks: a key, or the reason of one that is null. Empty if nothing."""
    for key in KEYS[name]:
        if key not in figures:
            return f"bench-{name}: no {key}"
        if figures[key] is None and not figures.get(WHY + key):
            return f"bench-{name}: {key} is null without {WHY}{key}"
    return ""


def file_problem(path: Path) -> str:
    """What is wrong with a file of results that is kept; empty if nothing is.

    Which keys its last line needs was up to the commit that printed it.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Result)
    except msgspec.MsgspecError as error:
        return str(error)
    if found.name not in KEYS or path.name != _path(found).name:
        return "its name is not that of its command, day and commit"
    if found.changed:
        return "made of a tree with changes that no commit has"
    if found.digest != found.digest_of():
        return "it was edited"
    if not commit_exists(found.commit):
        return f"no commit {found.commit} in this history"
    return ""


def commit_now() -> tuple[str, bool]:
    """The commit of the working tree, and whether there is more in it than the commit has.

    Without git the commit is empty, and nothing is known.
    """
    try:
        status = _git("status", "--porcelain", "--", ".", ":!benchmarks/results")
        return _git("rev-parse", "HEAD"), bool(status)
    except (OSError, subprocess.CalledProcessError):
        return "", True


def code_now() -> str:
    """Names the code that runs: the commit, and a digest of what has changed since."""
    commit, changed = commit_now()
    if not commit or not changed:
        return commit
    return f"{commit}+{hashlib.sha256(_git('diff', 'HEAD').encode()).hexdigest()[:8]}"


def commit_exists(commit: str) -> bool:
    """Whether this history holds it."""
    command = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
    return not subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _path(result: Result) -> Path:
    day, commit = result.began[:10], result.commit[:COMMIT_CHARS]
    return (SCRATCH if result.changed else FOLDER) / f"{result.name}-{day}-{commit}.json"
