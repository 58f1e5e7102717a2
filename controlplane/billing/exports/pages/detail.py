"""Every charged ledger line of every request: the file that an audit counts from."""

from datetime import UTC, datetime

from controlplane.billing.cells import (
    MICRO_PLACES,
    NANO_PLACES,
    Cell,
    Column,
    Value,
    decimal_text,
    instant_text,
    line_writer,
)
from controlplane.billing.exports.pages.lines import ChargedLine, LineReader, place_from
from controlplane.billing.exports.pages.scope import ExportPage, Scope
from controlplane.kernel.ids import public_id

COLUMNS = (
    Column("request_id", Cell.TEXT, "Request id, as in its response."),
    Column("line", Cell.NUMBER, "1 settles, 2 is an overage or a late charge."),
    Column("kind", Cell.TEXT, "`settle`, `overage` (beyond the hold), `late` (after it expired)."),
    Column("requested_at", Cell.TIME, "When the request came, to the millisecond of its id."),
    Column("booked_at", Cell.TIME, "When the line was booked, by the database's clock."),
    Column("project_id", Cell.TEXT, "Project id."),
    Column("project", Cell.FREE, "Its current name."),
    Column("key_id", Cell.TEXT, "API key id; the Playground's has the user's digits."),
    Column("key", Cell.FREE, "The key's current name; null for the Playground."),
    Column("model", Cell.TEXT, "Model that served the request."),
    Column("price_version", Cell.NUMBER, "Version of the model's prices that applied."),
    Column("uncached_input_tokens", Cell.NUMBER, "Prompt tokens that were computed."),
    Column("cached_input_tokens", Cell.NUMBER, "Prompt tokens read from a prefix cache."),
    Column("output_tokens", Cell.NUMBER, "Generated tokens; none for an overage."),
    Column("input_usd_per_million", Cell.NUMBER, "Price per million uncached prompt tokens."),
    Column("cached_usd_per_million", Cell.NUMBER, "Price per million cached prompt tokens."),
    Column("output_usd_per_million", Cell.NUMBER, "Price per million generated tokens."),
    Column("amount_usd", Cell.NUMBER, "Exact charge of the line, nine decimals."),
    Column("amount_nano_usd", Cell.NUMBER, "The same in nano-USD, an integer."),
    Column("usage_source", Cell.TEXT, "Source of the token counts."),
)


class DetailPages:
    """Pages of the file in the order of requests."""

    columns = COLUMNS

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._reader = LineReader(scope.organization, scope.start, scope.through)
        self._write = line_writer(COLUMNS, raw=scope.raw)

    def page(self, cursor: str) -> ExportPage:
        """The lines after a cursor; the empty one stands before all."""
        place = place_from(cursor) if cursor else self._reader.first()
        found, after = self._reader.read(place)
        return ExportPage(
            lines=[self._write(self._values(line)) for line in found],
            nano=sum(line.amount for line in found),
            cursor=after.text() if after else None,
            share=self._reader.share(after) if after else 1.0,
        )

    def _values(self, line: ChargedLine) -> tuple[Value, ...]:
        names = self._scope.names
        asked_at = datetime.fromtimestamp((line.request.int >> 80) / 1_000, UTC)
        return (
            public_id("req", line.request),
            line.slot,
            line.kind,
            instant_text(asked_at),
            instant_text(line.booked_at),
            public_id("proj", line.project),
            names.projects.get(line.project),
            public_id("key", line.key),
            names.keys.get(line.key),
            line.model,
            line.price_version,
            line.uncached,
            line.cached,
            line.output,
            decimal_text(line.input_pico, MICRO_PLACES),
            decimal_text(line.cached_pico, MICRO_PLACES),
            decimal_text(line.output_pico, MICRO_PLACES),
            decimal_text(line.amount, NANO_PLACES),
            line.amount,
            line.source or None,
        )
