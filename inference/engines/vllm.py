"""vLLM as an engine: `vllm serve` as a child process, and what any server of its kind gets.

It listens on a socket in a folder that only this user can enter. When it ends it is started again;
until then jobs are refused, so that their gateways take them elsewhere.
"""

import asyncio
import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from inference.children import end_with_parent
from inference.contract.frames import Job
from inference.engines.base import EngineEvents
from inference.engines.remote.engine import RemoteEngine
from inference.engines.remote.server import CREDITS, KV_ROLES, RemoteOptions
from inference.errors import JobRefused, ModelError

COMMAND = "vllm"
URL = "http://vllm/v1"
# Its socket.
HTTP = "http"
# By this word in it vLLM makes addresses of its other data-parallel ranks of one that is no port.
CHANNELS = ("kv-inproc", "replay-inproc")
READY_POLL_S = 0.25
STOP_WAIT_S = 10.0
# Before another start; each failure doubles it. What served for longer than the last did not fail.
RESTART_MIN_S, RESTART_MAX_S = 1.0, 60.0
RESTARTS_MAX = 5
# What the node sets itself, with the reason that a user is shown.
RESERVED = {
    "--uds": "the node has a socket of its own",
    "--host": "the node has a socket of its own",
    "--port": "the node has a socket of its own",
    "--api-key": "nobody else reaches the socket",
    "--served-model-name": "--model-name says it",
    "--max-num-seqs": "--credits says it",
    "--kv-events-config": "the node follows the cache itself",
    "--scheduling-policy": "jobs carry priorities",
}
# Nothing is reported to anyone.
ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1"}

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class VllmOptions:
    """`args` are further arguments of `vllm serve`; `running_max` jobs are decoded at once, with
    prompts of other nodes, or for those, by `kv_role`. Raises ValueError.
    """

    name: str = ""
    args: Sequence[str] = ()
    running_max: int = CREDITS
    kv_role: str = ""

    def __post_init__(self) -> None:
        for word in self.args:
            flag = word.partition("=")[0]
            if flag in RESERVED:
                raise ValueError(f"--vllm-args: {flag} cannot be set here: {RESERVED[flag]}")
        if self.running_max < 1:
            raise ValueError("--credits: must be at least 1")
        if self.kv_role not in KV_ROLES:
            raise ValueError("--kv-role: must be prefill or decode")


class VllmEngine(RemoteEngine):
    """Serves one model folder with `vllm serve`.

    Raises `ModelError` at construction where there is no vLLM, at `start` where it ends instead of
    serving.
    """

    def __init__(self, model_path: Path, options: VllmOptions | None = None) -> None:
        options = options or VllmOptions()
        self._command = _command()
        self._folder = Path(tempfile.gettempdir()) / f"sluice-vllm-{secrets.token_hex(8)}"
        socket, name = self._folder / HTTP, options.name or model_path.resolve().name
        super().__init__(
            RemoteOptions(
                url=URL, name=name, credits=options.running_max, server="vllm", key="",
                socket=str(socket), priorities=True, kv_role=options.kv_role,
                kv_events=",".join(f"ipc://{self._folder}/{each}" for each in CHANNELS),
            ),
            model_path,
        )  # fmt: skip
        channel, replays = self._options.kv_events.split(",")
        events = {
            "enable_kv_cache_events": True, "publisher": "zmq", "endpoint": channel,
            "replay_endpoint": replays,
        }  # fmt: skip
        self._argv = [
            self._command, "serve", str(model_path), "--uds", str(socket), "--served-model-name",
            name, "--max-num-seqs", str(options.running_max), "--scheduling-policy", "priority",
            "--enable-prompt-tokens-details", "--kv-events-config", json.dumps(events),
            *options.args,
        ]  # fmt: skip
        self._child: asyncio.subprocess.Process | None = None
        self._serves = self._closing = False

    async def start(self, events: EngineEvents) -> None:
        """Start it and wait until it serves; raises `ModelError`."""
        # Only this user can enter it.
        self._folder.mkdir(mode=0o700)
        await self._launch()
        await super().start(events)
        self._serves = True
        self._spawn(self._watch(events))

    def submit(self, job: Job) -> None:
        if not self._serves:
            raise JobRefused("full", "vLLM is being started again")
        super().submit(job)

    async def close(self) -> None:
        """End what runs as cancelled, stop vLLM's processes and remove the socket's folder."""
        self._closing = True
        await super().close()
        await self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _launch(self) -> None:
        """Raises `ModelError` where it ends before it serves."""
        # The one before may have left its own.
        (self._folder / HTTP).unlink(missing_ok=True)
        self._child = await asyncio.create_subprocess_exec(
            *self._argv,
            env=os.environ | ENVIRONMENT,
            stdin=asyncio.subprocess.DEVNULL,
            # A group of its own, since it starts further processes.
            start_new_session=True,
            preexec_fn=end_with_parent(),
        )
        server = self._connect()
        while not await server.told("/version"):
            if self._child.returncode is not None:
                status = self._child.returncode
                raise ModelError(f"vLLM ended with status {status} before it served: see its log")
            await asyncio.sleep(READY_POLL_S)

    async def _watch(self, events: EngineEvents) -> None:
        """Start vLLM again whenever it ends, unless it does so every time."""
        failures, served_s = 0, time.monotonic()
        while self._child is not None:
            status = await self._child.wait()
            if self._closing:
                return
            self._serves = False
            failures = 1 if time.monotonic() - served_s > RESTART_MAX_S else failures + 1
            pause_s = min(RESTART_MIN_S * 2 ** (failures - 1), RESTART_MAX_S)
            log.error("vLLM ended with status %s; started again in %.0f s", status, pause_s)
            await self._stop()
            if failures > RESTARTS_MAX:
                events.on_death(ModelError(f"vLLM ended {failures} times, with status {status}"))
                return
            if self._cache is not None:
                self._cache.begin_anew()
            await asyncio.sleep(pause_s)
            served_s = inf
            with contextlib.suppress(ModelError):
                await self._launch()
                self._serves, served_s = True, time.monotonic()
                log.info("vLLM serves again")

    async def _stop(self) -> None:
        """End all of its processes."""
        child = self._child
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            child.terminate()
            await asyncio.wait_for(child.wait(), STOP_WAIT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()


def _command() -> str:
    """The program, beside this interpreter or on the path; raises `ModelError`."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which(COMMAND, path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise ModelError(f"--engine vllm: there is no {COMMAND!r} beside Python or on the PATH")
    return found
