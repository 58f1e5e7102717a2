"""Ways from charts of other pages into Explore: the same range, part and figures, in groups."""

from urllib.parse import urlencode

from controlplane.telemetry.exploration import DIMENSIONS, MEASURES
from frontend.shared.asked import PREVIOUS, Asked

# Of charts by name, what Explore is asked; those without an entry are of no requests.
COUNTS = {"measure": "none"}
CHARTS: dict[str, dict[str, str]] = {
    "heat": {},
    "stages": {"measure": "s5_infer"},
    "stacked": {"measure": "s5_infer"},
    "phases": {"measure": "queue"},
    "buckets": {"by": "prompt_bucket", "measure": "ttft"},
    "speed": {"measure": "inter_token"},
    **{name: {"measure": name} for name in ("total", "ttft", "inter_token", "overhead")},
    **dict.fromkeys(("traffic", "throughput", "cache", "tokens"), COUNTS),
    "by": {},
}
# Charts of all tenants, of which staff see all, and others their own.
OF_ALL = frozenset(("stages", "overhead"))
SAME = {"status_class": "status"}


def explore_query(chart: str, asked: Asked, *, here: str, staff: bool) -> str:
    """The query of a chart's Explore; empty where there is none."""
    if chart not in CHARTS:
        return ""
    query = {"by": "time", **asked.within.query, **asked.segment.given, **CHARTS[chart]}
    if chart == "by":
        by = asked.chosen.get("by", "")
        query["by"] = SAME.get(by, by) if SAME.get(by, by) in DIMENSIONS else "model"
    if chart == "heat" and (measure := asked.chosen.get("measure", "")) in MEASURES:
        query["measure"] = measure
    if asked.compare:
        query["compare"] = PREVIOUS
    if staff and (here == "latency" or chart in OF_ALL or query["by"] == "organization"):
        query["organization"] = "all"
    return urlencode(query)
