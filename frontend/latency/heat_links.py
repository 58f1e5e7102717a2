"""Where a cell of the Latency page's heat map leads: to one's own requests of that time so long."""

from functools import partial
from math import floor, sqrt
from urllib.parse import urlencode

from django.urls import reverse

from controlplane.kernel.measures import STAGE_NAMES
from frontend.latency.heat_plot import CellLinks
from frontend.shared.formats import US_PER_MS

# Measures that the list of requests can be narrowed by, and its words for the least and the most.
LISTED = {"total": ("min_ms", "max_ms"), "ttft": ("min_ttft_ms", "max_ttft_ms")}


def cell_links(measure: str, model: str) -> CellLinks | None:
    """For a stage to an example, for total and first token to all; None where nothing is listed."""
    kept = {"model": model} if model else {}
    if measure in LISTED:
        query = partial(_between, *LISTED[measure])
        return CellLinks(_page("requests", kept), query, is_part=measure != "total")
    if measure in STAGE_NAMES:
        page = _page("request_exemplar", {"measure": measure, **kept})
        return CellLinks(page, _about, is_part=True)
    return None


def _page(name: str, kept: dict[str, str]) -> str:
    return f"{reverse(name)}?{urlencode(kept)}{'&' if kept else ''}"


def _between(least: str, most: str, low_us: float, high_us: float) -> str:
    """Values are whole microseconds, above the lower bound and up to the upper one."""
    return f"{least}={_ms(floor(low_us) + 1)}&{most}={_ms(floor(high_us))}"


def _about(low_us: float, high_us: float) -> str:
    return f"value={round(sqrt(low_us * high_us))}"


def _ms(value_us: int) -> str:
    whole, rest = divmod(value_us, US_PER_MS)
    return f"{whole}.{rest:03}".rstrip("0").rstrip(".")
