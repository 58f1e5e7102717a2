"""One replica on this host: its model is fetched, its node started, restarted with growing pauses,
and drained. The agent's own thread calls `step`; a thread of its own fetches.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from math import ceil
from pathlib import Path

from inference.agent.earlier import claim, note
from inference.agent.logs import SUFFIX, log_cut, log_open, log_tail
from inference.agent.models import HostModels, Looked, ModelAway, disk_wrong, files_digest
from inference.children import Restarts, end_family, end_with_parent, environment_without
from inference.contract.hosts import (
    TEXT_CHARS_MAX,
    Phase,
    ReplicaState,
    WantedReplica,
    arguments_wrong,
)
from inference.node.options import CREDENTIAL_VARIABLE, ENROL_VARIABLE

# What nodes do not inherit: neither the agent's token nor that of the hub.
HIDDEN = (
    ENROL_VARIABLE, f"{ENROL_VARIABLE}_FILE", f"{CREDENTIAL_VARIABLE}_FILE", "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
)  # fmt: skip
# Its model or its options must be mended first: tried again, but rarely.
HOPELESS, HOPELESS_S = (1, 2), 300.0
DRAIN_S = 30
# After the node's own deadline, for what comes after that.
KILL_AFTER_S = DRAIN_S + 15.0
MEBIBYTE = 1 << 20
SHARE_STEPS = 1_000


class Replica:
    """A replica that is wanted, or was and drains; `state` tells of it.

    Its log is below `logs`, what its node locks below `nodes`.
    """

    def __init__(self, wanted: WantedReplica, models: HostModels, logs: Path, nodes: Path) -> None:
        self.wanted = wanted
        self.credential = wanted.credential
        self._models = models
        self._log = logs / f"{wanted.id}{SUFFIX}"
        self._lock = nodes / wanted.id
        self._folder: Path | None = None
        self._fetching: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._phase: Phase = "fetching"
        self._message = self._digest = ""
        self._looked: Looked | None = None
        self._restarts = Restarts()
        self._deaths = 0
        self._leaving = False
        self._kill_at: float | None = None

    @property
    def gone(self) -> bool:
        """It was drained and has ended."""
        return self._leaving and self._process is None

    @property
    def state(self) -> ReplicaState:
        return ReplicaState(
            id=self.wanted.id,
            phase=self._phase,
            message=self._message[:TEXT_CHARS_MAX],
            pid=self._process.pid if self._process else None,
            restarts=self._deaths,
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
        if not self._leaving:
            self._leaving = True
            self._phase, self._message = "draining", ""
            self._end()

    def renew(self, credential: str) -> None:
        """Run with this credential: a node that has another one ends, and is started again."""
        self.credential = credential
        self._end()

    def _end(self) -> None:
        # A second signal would end it at once.
        if self._process is not None and self._kill_at is None:
            self._kill_at = time.monotonic() + KILL_AFTER_S
            self._process.send_signal(signal.SIGTERM)

    def step(self, gateways: list[str], disk_free: int | None) -> None:
        """Move it one step nearer to where it should be."""
        now = time.monotonic()
        if self._process is not None and self._process.poll() is not None:
            self._bury(self._process, now)
        elif self._process is not None:
            self._look(self._process, now)
        elif not self._leaving and now >= self._restarts.retry_at and self._fetching is None:
            if self._folder is None:
                self._begin_fetch(disk_free)
            elif self.credential:
                try:
                    self._start(self._folder, gateways, now)
                except OSError as error:
                    self._put_off("waiting", f"It cannot be started: {error}", now)

    def _look(self, process: subprocess.Popen[bytes], now: float) -> None:
        log_cut(self._log)
        if self._kill_at is None and self._restarts.recovered(now):
            self._message = ""
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
            self._restarts.reset()
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
        lock = claim(self._lock)
        if lock is None:
            return
        environment = {**environment_without(*HIDDEN), CREDENTIAL_VARIABLE: self.credential}
        if self.wanted.gpu is not None:
            # Numbered as NVML does.
            environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
            environment["CUDA_VISIBLE_DEVICES"] = str(self.wanted.gpu)
        try:
            with log_open(self._log) as out:
                self._process = subprocess.Popen(
                    node_argv(self.wanted, folder, gateways),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                    pass_fds=[lock],
                    # One whose agent was killed drains: the next agent waits for that.
                    preexec_fn=end_with_parent(),
                )
            self._restarts.started, self._phase = now, "running"
            note(lock, self._process.pid)
        finally:
            os.close(lock)

    def _bury(self, process: subprocess.Popen[bytes], now: float) -> None:
        end_family(process.pid)
        asked, self._process, self._kill_at = self._kill_at is not None, None, None
        if self._leaving:
            self._lock.unlink(missing_ok=True)
        if self._leaving or asked:
            return
        self._deaths += 1
        if process.returncode in HOPELESS:
            self._restarts.pause_s = HOPELESS_S
        said = log_tail(self._log)
        self._put_off("waiting", f"It ended with status {process.returncode}. {said}", now)

    def _put_off(self, phase: Phase, message: str, now: float) -> None:
        self._phase, self._message = phase, message
        self._restarts.put_off(now)


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
    if wanted.engine == "vllm":
        # What the deployment's arithmetic gave it. Its own arguments take all that follows.
        share = ceil(wanted.share * SHARE_STEPS) / SHARE_STEPS
        argv += ["--vllm-args", "--max-model-len", str(wanted.window)]
        argv += ["--gpu-memory-utilization", str(share)]
    return argv + given
