"""What was used, by hour or day, project, key, model and kind of token."""

from controlplane.billing.cells import (
    MICRO_PLACES,
    PICO_PLACES,
    Cell,
    Column,
    Value,
    decimal_text,
    line_writer,
    time_text,
)
from controlplane.billing.exports.pages.buckets import (
    BucketCharge,
    cursor_after,
    start_from,
    window_read,
)
from controlplane.billing.exports.pages.scope import ExportPage, Scope
from controlplane.kernel.ids import public_id

COLUMNS = (
    Column("start", Cell.TIME, "Start of the hour or day in UTC, by posting time."),
    Column("end", Cell.TIME, "End of the hour or day, exclusive."),
    Column("project_id", Cell.TEXT, "Project id."),
    Column("project", Cell.FREE, "Its current name."),
    Column("key_id", Cell.TEXT, "API key id; the Playground's has the user's digits."),
    Column("key", Cell.FREE, "The key's current name; null for the Playground."),
    Column("model", Cell.TEXT, "Model that served the request."),
    Column("price_version", Cell.NUMBER, "Version of the model's prices that applied."),
    Column(
        "token_type", Cell.TEXT, "`uncached_input`, `cached_input`, `output`; `rounding` has none."
    ),
    Column("tokens", Cell.NUMBER, "Number of tokens; null for rounding."),
    Column("usd_per_million", Cell.NUMBER, "Price per million tokens; null for rounding."),
    Column("cost_usd", Cell.NUMBER, "Tokens times price, exact, twelve decimals."),
    Column(
        "requests", Cell.NUMBER, "Number of requests, counted once: on the row of uncached input."
    ),
    Column("amount_nano_usd", Cell.NUMBER, "The row's share of the ledger, in nano-USD."),
)


class UsagePages:
    """A window of time a page."""

    columns = COLUMNS

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._write = line_writer(COLUMNS, raw=scope.raw)

    def page(self, cursor: str) -> ExportPage:
        """The window that begins at a cursor; the empty one is the first."""
        window = window_read(self._scope, start_from(cursor, self._scope))
        return ExportPage(
            lines=[self._write(self._values(charge)) for charge in window.charges],
            nano=window.nano,
            cursor=cursor_after(self._scope, window),
            share=self._scope.share(window.end),
        )

    def _values(self, charge: BucketCharge) -> tuple[Value, ...]:
        names, group, part = self._scope.names, charge.group, charge.part
        return (
            time_text(charge.start),
            time_text(charge.end),
            public_id("proj", group.project),
            names.projects.get(group.project),
            public_id("key", group.key),
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
