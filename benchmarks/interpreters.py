"""`make bench-interpreters`: what the gateway costs on other Pythons, beside this one.

Each interpreter serves a gateway and a control of its own, from an environment with what a gateway
needs (`requirements/web.txt`); databases, node and load stay with this one. All are up at once, on
one core, and take turns. How an interpreter was built tells as much as its version: see `build`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks.gateway import asked
from benchmarks.gateway.asked import NOBODY
from benchmarks.gateway.groups import GATEWAY_APP, STEP_PER_TOKEN
from benchmarks.gateway.turns import Plan, Run, Server, Side
from benchmarks.machine import describe, pin, rss_mib
from benchmarks.recorder import ROOT, Recorder, spread
from benchmarks.serve import CONTROL_APP
from benchmarks.stack import OTHER_CORE, Stack, fleet_url, node, serve, serving, stack, wait_for

LOCK = ROOT / "requirements" / "web.txt"
ENVIRONMENTS = ROOT / "var" / "interpreters"
INSTALL_S_MAX = 600.0
PYTHONS_MAX = 6
PLAN = Plan(passes=5, seconds=1.5, warm_s=0.7, paced_tokens=0)
FACTS = (
    "import json, platform, sys; print(json.dumps({'name': platform.python_version(), "
    "'build': ' '.join([*platform.python_build(), platform.python_compiler()])}))"
)


class Interpreter(NamedTuple):
    """One that serves. `name` is its version; `build` is what it says of how it was made."""

    python: str
    name: str
    build: str


def interpreter(python: str) -> Interpreter:
    """What an interpreter tells of itself; raises where it does not run."""
    told = subprocess.run([python, "-c", FACTS], check=True, capture_output=True, text=True)
    return Interpreter(python, **json.loads(told.stdout))


def environment(python: str) -> str:
    """The Python of an environment of this interpreter that has all a gateway imports."""
    path = subprocess.run(
        [python, "-c", "import sys; print(sys.executable)"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    named = hashlib.sha256(path.encode() + LOCK.read_bytes()).hexdigest()[:12]
    folder = ENVIRONMENTS / named
    stamp = folder / "installed"
    inner = str(folder / "bin" / "python")
    if not stamp.exists():
        print(f"installing {LOCK.name} for {path} ...", flush=True)
        # This one's pip installs for it, since systems leave `ensurepip` out.
        made = [path, "-m", "venv", "--clear", "--without-pip", str(folder)]
        subprocess.run(made, check=True, timeout=INSTALL_S_MAX)
        pip = [sys.executable, "-m", "pip", "--python", inner, "--disable-pip-version-check"]
        pip += ["--no-input", "install", "-q", "--require-hashes", "-r", str(LOCK)]
        subprocess.run(pip, check=True, timeout=INSTALL_S_MAX)
        stamp.touch()
    return inner


@contextlib.contextmanager
def served(
    made: Stack, pythons: list[Interpreter], *engine: str
) -> Iterator[Mapping[str, tuple[Server, Server]]]:
    """Of each interpreter a gateway and a control; one node serves all gateways."""
    with contextlib.ExitStack() as running:
        found = {
            each.name: (
                Server(*running.enter_context(serve(GATEWAY_APP, python=each.python))),
                Server(*running.enter_context(serve(CONTROL_APP, python=each.python))),
            )
            for each in pythons
        }
        first, *others = [gateway.port for gateway, _ in found.values()]
        dialled = [part for port in others for part in ("--gateway", fleet_url(port))]
        running.enter_context(node(made, first, "--engine", "echo", *engine, *dialled))
        wait_for(lambda: all(map(serving, others)), "the node to serve every gateway")
        yield found


def measure(run: Run, pythons: list[Interpreter]) -> None:
    """Whole chats beside each interpreter's own control, then streams."""
    with served(run.made, pythons) as servers:
        for name, (gateway, _) in servers.items():
            run.recorder.keep(f"{name} idle", {"rss_mib": rss_mib(gateway.pid)})
        sides = [
            side
            for name, (gateway, control) in servers.items()
            for side in (
                Side(f"{name} chat", gateway, asked.chat(run.made.key)),
                Side(f"{name} control", control, asked.chat(NOBODY)),
            )
        ]
        run.in_turns(sides, run.cost)
        for name, (gateway, _) in servers.items():
            run.recorder.keep(f"{name} loaded", {"rss_mib": rss_mib(gateway.pid)})
    with served(run.made, pythons, *STEP_PER_TOKEN) as servers:
        streams = [
            Side(f"{name} streams", gateway, asked.streamed(run.made.key))
            for name, (gateway, _) in servers.items()
        ]
        run.in_turns(streams, run.cost)


def figures(recorder: Recorder, pythons: list[Interpreter]) -> dict[str, Any]:
    """Of each interpreter; `cpu_x_first` is its chats' CPU to that of the first one's."""
    found: dict[str, Any] = {}
    first = recorder.passes[f"{pythons[0].name} chat"]
    for each in pythons:
        chats = recorder.passes[f"{each.name} chat"]
        controls = recorder.passes[f"{each.name} control"]
        streams = recorder.passes[f"{each.name} streams"]
        beside = [
            ("cpu_ms", [row["cpu_ms"] for row in chats], 4),
            ("control_cpu_ms", [row["cpu_ms"] for row in controls], 4),
            ("ratio", _ratios(chats, controls), 2),
            ("cpu_x_first", _ratios(chats, first), 3),
            ("per_s", [row["per_s"] for row in chats], 1),
            ("streams_per_s", [row["per_s"] for row in streams], 1),
            ("stream_cpu_ms", [row["cpu_ms"] for row in streams], 4),
        ]
        found[each.name] = {"build": each.build}
        for key, values, digits in beside:
            found[each.name] |= spread(key, values, digits)
        for when in ("idle", "loaded"):
            (kept,) = recorder.passes[f"{each.name} {when}"]
            found[each.name][f"rss_mib_{when}"] = round(kept["rss_mib"], 1)
    return {"interpreters": found}


def _ratios(of: list[Any], to: list[Any]) -> list[float]:
    return [one["cpu_ms"] / other["cpu_ms"] for one, other in zip(of, to, strict=True)]


def show(found: Mapping[str, Any]) -> None:
    """A column for each figure; medians."""
    keys = ("cpu_ms", "control_cpu_ms", "ratio", "cpu_x_first", "per_s", "streams_per_s",
            "stream_cpu_ms", "rss_mib_idle", "rss_mib_loaded")  # fmt: skip
    print(f"{'':10}" + "".join(f"{key:>16}" for key in keys))
    for name, row in found["interpreters"].items():
        print(f"{name:10}" + "".join(f"{row[key]:16.3f}" for key in keys))
    for name, row in found["interpreters"].items():
        print(f"  {name}: {row['build']}")


def main() -> int:
    """Interpreters by name or path; this one is the first."""
    given = sys.argv[1:]
    if not 1 <= len(given) <= PYTHONS_MAX:
        print(f'Name 1 to {PYTHONS_MAX} interpreters: PYTHONS="3.12 /opt/python3.14/bin/python3"')
        return 2
    paths = [name if "/" in name else f"python{name}" for name in given]
    pythons = [interpreter(each) for each in (sys.executable, *map(environment, paths))]
    pin(0, OTHER_CORE)
    print(f"bench-interpreters: {describe()}")
    recorder = Recorder("interpreters", pythons=given)
    with stack() as made:
        run = Run(made, recorder, PLAN)
        measure(run, pythons)
    found = figures(recorder, pythons)
    show(found)
    recorder.finish({**found, "errors": run.errors})
    return 1 if run.errors else 0


if __name__ == "__main__":
    sys.exit(main())
