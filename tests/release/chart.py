"""The Helm chart as Helm renders it; `python -m tests.release.chart` prints the plain manifest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "docker" / "chart"
PACKAGING = ROOT / ".packaging"
HELM = PACKAGING / "helm" / "helm"
RELEASE = "sluice"
HEAD = """\
# Made by `make manifest`: the chart in docker/chart with its defaults. docs/kubernetes.md says how
# to apply it. For anything but a first look, render the chart with your own values instead.
"""


def helm(*words: str, values: Path | None = None) -> subprocess.CompletedProcess[str]:
    """One run of Helm, which must be there: make installs it in .packaging."""
    assert HELM.exists(), "The tests need Helm: make .packaging, as `make test` does."
    given = ["--values", str(values)] if values else []
    return subprocess.run(
        [HELM, *words, *given], capture_output=True, text=True, check=False, cwd=ROOT
    )


def rendered(version: str = "1.33.0", values: Path | None = None) -> str:
    """The chart's manifests for a version of Kubernetes."""
    done = helm(
        "template", RELEASE, str(CHART), "--namespace", RELEASE, "--kube-version", version,
        values=values,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text: str) -> list[dict[str, Any]]:
    """The objects of rendered manifests."""
    return [made for made in yaml.safe_load_all(text) if made]


def manifest() -> str:
    """The chart with its defaults."""
    return HEAD + rendered()


if __name__ == "__main__":
    sys.stdout.write(manifest())
