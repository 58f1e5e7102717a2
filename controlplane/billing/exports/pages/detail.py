"""Every charged ledger line of every request: the file that an audit counts from."""

from datetime import UTC, datetime

from controlplane.billing import cells
from controlplane.billing.exports.pages.lines import ChargedLine, LineReader, place_from
from controlplane.billing.exports.pages.scope import ExportPage, Scope
from controlplane.kernel.ids import public_id

COLUMNS = cells.columns("""
    request_id             text   Request id, as in its response.
    line                   number 1 settles, 2 is an overage or a late charge.
    kind                   text   `settle`, `overage` (beyond the hold), `late` (after it expired).
    requested_at           time   When the request came, to the millisecond of its id.
    booked_at              time   When the line was booked, by the database's clock.
    project_id             text   Project id.
    project                free   Its current name.
    key_id                 text   API key id; the Playground's has the user's digits.
    key                    free   The key's current name; null for the Playground.
    model                  text   Model that served the request.
    price_version          number Version of the model's prices that applied.
    uncached_input_tokens  number Prompt tokens that were computed.
    cached_input_tokens    number Prompt tokens read from a prefix cache.
    output_tokens          number Generated tokens; none for an overage.
    input_usd_per_million  number Price per million uncached prompt tokens.
    cached_usd_per_million number Price per million cached prompt tokens.
    output_usd_per_million number Price per million generated tokens.
    amount_usd             number Exact charge of the line, nine decimals.
    amount_nano_usd        number The same in nano-USD, an integer.
    usage_source           text   Source of the token counts.
""")


class DetailPages:
    """Pages of the file in the order of requests."""

    columns = COLUMNS

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._reader = LineReader(scope.organization, scope.start, scope.through)
        self._write = cells.line_writer(COLUMNS, raw=scope.raw)

    def page(self, cursor: str) -> ExportPage:
        place = place_from(cursor) if cursor else self._reader.first()
        found, after = self._reader.read(place)
        return ExportPage(
            lines=[self._write(self._values(line)) for line in found],
            nano=sum(line.amount for line in found),
            cursor=after.text() if after else None,
            share=self._reader.share(after) if after else 1.0,
        )

    def _values(self, line: ChargedLine) -> tuple[cells.Value, ...]:
        names = self._scope.names
        asked_at = datetime.fromtimestamp((line.request.int >> 80) / 1_000, UTC)
        return (
            public_id("req", line.request),
            line.slot,
            line.kind,
            cells.instant_text(asked_at),
            cells.instant_text(line.booked_at),
            public_id("proj", line.project),
            names.projects.get(line.project),
            public_id("key", line.key),
            names.keys.get(line.key),
            line.model,
            line.price_version,
            line.uncached,
            line.cached,
            line.output,
            cells.decimal_text(line.input_pico, cells.MICRO_PLACES),
            cells.decimal_text(line.cached_pico, cells.MICRO_PLACES),
            cells.decimal_text(line.output_pico, cells.MICRO_PLACES),
            cells.decimal_text(line.amount, cells.NANO_PLACES),
            line.amount,
            line.source or None,
        )
