"""The one configuration that every Plotly chart gets: nothing is ever sent to a vendor's cloud."""

CONFIG: dict[str, object] = {
    # Plotly's own toolbar can upload a chart; the toolbar also costs ten tab stops a chart.
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "displaylogo": False,
    "displayModeBar": False,
    "responsive": True,
    "scrollZoom": False,
}


def plot_config() -> dict[str, object]:
    """A copy, so that no chart can change another's."""
    return dict(CONFIG)
