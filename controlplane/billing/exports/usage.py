"""What was used, by hour or day, project, key, model and kind of token."""

from __future__ import annotations

from controlplane.billing.exports.buckets import (
    Charge,
    cursor_after,
    start_from,
    window_read,
)
from controlplane.billing.exports.cells import (
    MICRO_PLACES,
    PICO_PLACES,
    Cell,
    Column,
    Value,
    decimal_text,
    line_writer,
    time_text,
)
from controlplane.billing.exports.pages import Page, Scope

COLUMNS = (
    Column("start", Cell.TIME, "Beginning of the hour or day in UTC, by the time of booking."),
    Column("end", Cell.TIME, "Its end; the first moment that is no more in it."),
    Column("project_id", Cell.TEXT, "The project."),
    Column("project", Cell.FREE, "Its present name."),
    Column("key_id", Cell.TEXT, "The API key, or the user for requests of the Playground."),
    Column("key", Cell.FREE, "The key's present name; null for the Playground."),
    Column("model", Cell.TEXT, "The model that served."),
    Column("price_version", Cell.NUMBER, "Which version of the model's prices was in force."),
    Column(
        "token_type", Cell.TEXT, "`uncached_input`, `cached_input`, `output`; `rounding` has none."
    ),
    Column("tokens", Cell.NUMBER, "How many; null on rounding."),
    Column("usd_per_million", Cell.NUMBER, "Price of a million of them; null on rounding."),
    Column("cost_usd", Cell.NUMBER, "Tokens at that price, exact, with twelve decimals."),
    Column("requests", Cell.NUMBER, "Requests, told once: on the row of uncached input."),
    Column("amount_nano_usd", Cell.NUMBER, "The row's part of the ledger's amount in nano-USD."),
)


class UsagePages:
    """A window of time a page."""

    columns = COLUMNS

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._write = line_writer(COLUMNS, raw=scope.raw)

    def page(self, cursor: str) -> Page:
        """The window that begins at a cursor; the empty one is the first."""
        window = window_read(self._scope, start_from(cursor, self._scope))
        return Page(
            lines=[self._write(self._values(charge)) for charge in window.charges],
            nano=window.nano,
            cursor=cursor_after(self._scope, window),
            share=self._scope.share(window.end),
        )

    def _values(self, charge: Charge) -> tuple[Value, ...]:
        names, group, part = self._scope.names, charge.group, charge.part
        return (
            time_text(charge.start),
            time_text(charge.end),
            group.project.hex,
            names.projects.get(group.project),
            group.key.hex,
            names.keys.get(group.key),
            group.model,
            group.price_version,
            part.token_type,
            part.tokens,
            None if part.rate_pico is None else decimal_text(part.rate_pico, MICRO_PLACES),
            decimal_text(part.pico, PICO_PLACES),
            part.requests,
            part.nano,
        )
