"""A chart's figures as a table, put together here: a template takes ten times as long over it."""

from __future__ import annotations

from html import escape

from django.utils.safestring import SafeString, mark_safe

from frontend.formats import MISSING
from frontend.plots.figure import Panel

ROWS_MAX = 400


def panel_table(panel: Panel) -> SafeString:
    """All rows, or the newest of very many with a word on the others."""
    rows = panel.rows()
    number = ' class="number"'
    heads = "".join(
        f'<th scope="col"{number if place else ""}>{escape(name)}</th>'
        for place, name in enumerate(panel.head)
    )
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f'<td class="number">{escape(text or MISSING)}</td>' for text in rest)
        + "</tr>"
        for first, *rest in rows[-ROWS_MAX:]
    )
    if not rows:
        body = f'<tr><td colspan="{len(panel.head)}">No data in this range</td></tr>'
    more = ""
    if len(rows) > ROWS_MAX:
        more = f'<p class="note">The newest {ROWS_MAX} of {len(rows):,} rows; the CSV has all.</p>'
    # Every piece of text was escaped above.
    return mark_safe(f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{more}")
