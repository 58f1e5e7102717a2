"""Real vLLM in its own environment: where that is, and its OpenAI server on a loopback port."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.loopback import HOST, reserve_port
from tests.support.shipped import SHIPPED

ROOT = Path(__file__).resolve().parents[2]
START_S_MAX = 300.0
STOP_S_MAX = 60.0
POLL_S = 0.2
LOG_CHARS_MAX = 6_000
# Asks a process to end when the tests are killed, which else would leave it behind.
LEASH = ("setpriv", "--pdeathsig", "TERM")
WINDOW = 2048
# One thread, bound to no core: the tests beside it need the other.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    # The engine computes in its own process, as on one GPU: with one more, both wait by spinning.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
ARGUMENTS = {
    "--dtype": "float32",
    "--max-model-len": str(WINDOW),
    "--max-num-seqs": "8",
    "--max-num-batched-tokens": "4096",
    "--block-size": "32",
    "--kv-cache-memory-bytes": str(256 * 2**20),
}
FLAGS = ("--enforce-eager", "--no-enable-chunked-prefill", "--enable-prompt-tokens-details")


def vllm_python() -> str:
    """The interpreter of vLLM's environment."""
    path = ROOT / os.environ.get("VLLM_VENV", ".venv-vllm") / "bin" / "python"
    assert path.exists(), f"{path} is missing: run `make vllm-env`"
    return str(path)


def vllm_name(folder: Path) -> Path:
    """A folder for the path of Python that says which version of vLLM is there: its build for CPUs
    has a distribution name of its own, by which its own commands do not find it."""
    (told,) = (ROOT / ".venv-vllm").glob("lib/*/site-packages/vllm_cpu-*.dist-info")
    version = told.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
    made = folder / f"vllm-{version}.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    return folder


@dataclass(frozen=True)
class VllmServer:
    """`url` ends in /v1; the process group is ended by whoever started it."""

    url: str
    model: str
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def vllm_server(
    log: Path, *extra: str, api_key: str | None = None, variables: Mapping[str, str] | None = None
) -> Iterator[VllmServer]:
    """Serve the shipped model until the block ends. It takes about half a minute to start.

    `extra` are further arguments of vLLM, `variables` more of its environment; `log` gets all that
    it writes.
    """
    port = reserve_port()
    argv = [*LEASH, vllm_python(), "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server"]
    argv += ["--model", str(SHIPPED), "--served-model-name", SHIPPED.name]
    argv += ["--host", HOST, "--port", str(port), *FLAGS]
    argv += [part for pair in ARGUMENTS.items() for part in pair]
    environment = {**os.environ, **ENVIRONMENT, **(variables or {})}
    if api_key is not None:
        environment["VLLM_API_KEY"] = api_key
    process = start_group([*argv, *extra], environment, log)
    try:
        _wait_until_ready(f"http://{HOST}:{port}/health", process, log)
        yield VllmServer(f"http://{HOST}:{port}/v1", SHIPPED.name, process)
    finally:
        end_group(process)


def start_group(
    argv: Sequence[str], environment: dict[str, str], log: Path, keep: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """A process in a group of its own, since vLLM starts several; `keep` are open files for it."""
    with log.open("ab") as out:
        return subprocess.Popen(
            argv, env=environment, cwd=ROOT, stdout=out, stderr=out, pass_fds=keep,
            start_new_session=True,
        )  # fmt: skip


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ask the first process to end, then kill whatever of its group is left."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S_MAX)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline_s:
        written = log.read_text(errors="replace")[-LOG_CHARS_MAX:]
        assert process.poll() is None, f"vLLM ended with {process.returncode}:\n{written}"
        with contextlib.suppress(urllib.error.URLError, TimeoutError, ConnectionError):
            urllib.request.urlopen(url, timeout=POLL_S).close()
            return
        time.sleep(POLL_S)
    raise AssertionError(f"vLLM was not ready within {START_S_MAX:.0f} s:\n{written}")
