"""One replica on this host: its model is fetched, its node started, restarted with growing pauses,
and drained. The agent's own thread calls `step`; a thread of its own fetches.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from inference.agent.control import child_environment
from inference.agent.models import HostModels, Looked, ModelAway, disk_wrong, files_digest
from inference.contract.hosts import (
    TEXT_CHARS_MAX,
    Phase,
    ReplicaState,
    WantedReplica,
    arguments_wrong,
)
from inference.node.options import CREDENTIAL_VARIABLE

BACKOFF_S_MIN, BACKOFF_S_MAX = 0.5, 30.0
# Its model or its options must be mended first: tried again, but rarely.
HOPELESS, HOPELESS_S = (1, 2), 300.0
# A node that lived this long has recovered.
HEALTHY_S = 60.0
DRAIN_S = 30
# After the node's own deadline, for what comes after that.
KILL_AFTER_S = DRAIN_S + 15.0
LOG_BYTES_MAX = 20 << 20
LOG_TAIL_BYTES = 2_000
LOG_MODE = 0o600
MEBIBYTE = 1 << 20
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class Replica:
    """A replica that is wanted, or was and drains; `state` tells of it."""

    def __init__(self, wanted: WantedReplica, models: HostModels, logs: Path) -> None:
        self.wanted = wanted
        self.credential = wanted.credential
        self._models = models
        self._log = logs / f"{wanted.id}.log"
        self._folder: Path | None = None
        self._fetching: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._phase: Phase = "fetching"
        self._message = self._digest = ""
        self._looked: Looked | None = None
        self._started = self._retry_at = 0.0
        self._backoff_s = BACKOFF_S_MIN
        self._restarts = 0
        self._kill_at: float | None = None

    @property
    def gone(self) -> bool:
        """It was drained and has ended."""
        return self._kill_at is not None and self._process is None

    @property
    def state(self) -> ReplicaState:
        return ReplicaState(
            id=self.wanted.id,
            phase=self._phase,
            message=self._message[:TEXT_CHARS_MAX],
            pid=self._process.pid if self._process else None,
            restarts=self._restarts,
            fetched=self._fetched,
            to_fetch=self._looked.size.files if self._looked else None,
            digest=self._digest,
        )

    @property
    def _fetched(self) -> int | None:
        if self._looked is None:
            return None
        whole = self._looked.size.files
        return whole if self._folder or not self._looked.blobs else min(whole, self._looked.here)

    def drain(self) -> None:
        """Ask the node to finish what it has and end; it is killed past its bound."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + KILL_AFTER_S
            self._phase, self._message = "draining", ""
            if self._process is not None:
                self._process.send_signal(signal.SIGTERM)

    def step(self, gateways: list[str], disk_free: int | None) -> None:
        """Move it one step nearer to where it should be."""
        now = time.monotonic()
        if self._process is not None and self._process.poll() is not None:
            self._bury(self._process, now)
        elif self._process is not None:
            self._look(self._process, now)
        elif self._kill_at is None and now >= self._retry_at and self._fetching is None:
            if self._folder is None:
                self._begin_fetch(disk_free)
            elif self.credential:
                self._start(self._folder, gateways, now)

    def _look(self, process: subprocess.Popen[bytes], now: float) -> None:
        if self._kill_at is None and now - self._started > HEALTHY_S:
            self._backoff_s, self._message = BACKOFF_S_MIN, ""
        if self._kill_at is not None and now >= self._kill_at:
            process.kill()

    def _begin_fetch(self, disk_free: int | None) -> None:
        self._phase, self._message = "fetching", ""
        self._fetching = threading.Thread(target=self._fetch, args=(disk_free,), daemon=True)
        self._fetching.start()

    def _fetch(self, disk_free: int | None) -> None:
        try:
            self._looked = self._checked(disk_free)
            folder = self._models.fetch(self.wanted.source)
            self._digest = files_digest(folder)
            if self.wanted.digest not in ("", self._digest):
                raise ModelAway(
                    f"Its files have the digest {self._digest}; the deployment's first replica "
                    f"had {self.wanted.digest}."
                )
        except Exception as error:  # The hub's client and its transport have no common class.
            self._put_off("failed", str(error), time.monotonic())
        else:
            self._backoff_s = BACKOFF_S_MIN
            self._folder = folder
        finally:
            self._fetching = None

    def _checked(self, disk_free: int | None) -> Looked:
        wrong = arguments_wrong(self.wanted.engine, self.wanted.arguments)
        looked = self._models.look(self.wanted.source)
        if looked.blobs and not wrong:
            wrong = disk_wrong(looked.size.files - looked.here, disk_free)
        if wrong:
            raise ModelAway(wrong)
        return looked

    def _start(self, folder: Path, gateways: list[str], now: float) -> None:
        environment = {**child_environment(), CREDENTIAL_VARIABLE: self.credential}
        if self.wanted.gpu is not None:
            # Numbered as NVML does.
            environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
            environment["CUDA_VISIBLE_DEVICES"] = str(self.wanted.gpu)
        if self._log.exists() and self._log.stat().st_size > LOG_BYTES_MAX:
            self._log.replace(self._log.with_suffix(".log.1"))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        try:
            with os.fdopen(os.open(self._log, flags, LOG_MODE), "ab") as out:
                self._process = subprocess.Popen(
                    node_argv(self.wanted, folder, gateways),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                    preexec_fn=_end_with_agent,
                )
        except OSError as error:
            self._put_off("waiting", f"It cannot be started: {error}", now)
            return
        self._started, self._phase = now, "running"

    def _bury(self, process: subprocess.Popen[bytes], now: float) -> None:
        # What a node started and left behind shares its session's process group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        self._process = None
        if self._kill_at is not None:
            return
        self._restarts += 1
        if process.returncode in HOPELESS:
            self._backoff_s = HOPELESS_S
        said = _tail(self._log)
        self._put_off("waiting", f"It ended with status {process.returncode}. {said}", now)

    def _put_off(self, phase: Phase, message: str, now: float) -> None:
        self._phase, self._message = phase, message
        self._retry_at = now + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, BACKOFF_S_MAX)


def node_argv(wanted: WantedReplica, folder: Path, gateways: list[str]) -> list[str]:
    """The command of a node; nothing in it is secret."""
    argv = [sys.executable, "-m", "inference", "--name", wanted.node, "--pool", wanted.pool]
    argv += ["--engine", wanted.engine, "--model", str(folder), "--model-name", wanted.model]
    argv += ["--drain-deadline", str(DRAIN_S)]
    for url in gateways:
        argv += ["--gateway", url]
    if wanted.engine == "compact":
        argv += ["--device", "cpu" if wanted.gpu is None else "cuda"]
        argv += ["--kv-mib", str(-(-wanted.kv // MEBIBYTE))]
    given = [word for name, value in wanted.arguments.items() for word in (f"--{name}", value)]
    # Its own take all that follows.
    return argv + (["--vllm-args", *given] if wanted.engine == "vllm" else given)


def _end_with_agent() -> None:
    # A node whose agent was killed drains: the next agent starts its own.
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
