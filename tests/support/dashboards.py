"""Names of metrics that Grafana's dashboard and Prometheus' rules of docker/ ask for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

DOCKER = Path(__file__).parents[2] / "docker"
NAME = re.compile(r"\b((?:sluice|gen_ai|process)_[a-z_]+)\b(?!\s*=)")
LABELS = re.compile(r"\{[^}]*\}|\b(?:by|without)\s*\([^)]*\)")


def asked_for() -> set[str]:
    """Names of samples, those of histograms with their ending."""
    dashboard = json.loads((DOCKER / "grafana/dashboards/sluice.json").read_text())
    groups = yaml.safe_load((DOCKER / "prometheus/alerts.yml").read_text())["groups"]
    expressions = [
        *(target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())),
        *(rule["expr"] for group in groups for rule in group["rules"]),
    ]
    return {name for text in expressions for name in NAME.findall(LABELS.sub("", text))}


def offered(page: str) -> set[str]:
    """Names of samples that a page of metrics may have, whether or not there are any now."""
    names: set[str] = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE):
        endings = ("_bucket", "_sum", "_count") if "histogram" in kind else ("",)
        names |= {name + ending for ending in endings}
    return names
