"""A chart's figures as a table, put together here: a template takes ten times as long over it."""

from html import escape

from django.utils.safestring import SafeString, mark_safe

from frontend.shared.formats import MISSING
from frontend.shared.plots.figure import Linked, Panel

ROWS_MAX = 200
# No text of a page has it.
_BETWEEN = "\0"


def panel_table(panel: Panel) -> SafeString:
    """All rows, or the newest of very many with a word on the others."""
    rows = panel.rows()
    number = ' class="number"'
    heads = "".join(
        f'<th scope="col"{number if place else ""}>{escape(name)}</th>'
        for place, name in enumerate(panel.head)
    )
    shown = rows[-ROWS_MAX:]
    addresses = panel.addresses(len(shown)) if isinstance(panel, Linked) else []
    pairs = zip(shown, addresses or [""] * len(shown), strict=True)
    body = "".join(_row(texts, address) for texts, address in pairs)
    if not rows:
        body = f'<tr><td colspan="{len(panel.head)}">No data in this range</td></tr>'
    more = ""
    if len(rows) > ROWS_MAX:
        more = f'<p class="note">The newest {ROWS_MAX} of {len(rows):,} rows; the CSV has all.</p>'
    # Every piece of text was escaped above.
    return mark_safe(f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{more}")


def _row(texts: list[str], address: str) -> str:
    """Escaped as a whole, since there are thousands of cells."""
    first, *rest = escape(_BETWEEN.join(text or MISSING for text in texts)).split(_BETWEEN)
    if address:
        first = f'<a href="{escape(address)}">{first}</a>'
    cells = "".join(f'<td class="number">{text}</td>' for text in rest)
    return f'<tr><th scope="row">{first}</th>{cells}</tr>'
