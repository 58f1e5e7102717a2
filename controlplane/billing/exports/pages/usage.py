"""What was used, by hour or day, project, key, model and kind of token."""

from controlplane.billing import cells
from controlplane.billing.exports.pages import buckets
from controlplane.billing.exports.pages.scope import ExportPage, Scope
from controlplane.kernel.ids import public_id

COLUMNS = cells.columns("""
    start           time   Start of the hour or day in UTC, by posting time.
    end             time   End of the hour or day, exclusive.
    project_id      text   Project id.
    project         free   Its current name.
    key_id          text   API key id; the Playground's has the user's digits.
    key             free   The key's current name; null for the Playground.
    model           text   Model that served the request.
    price_version   number Version of the model's prices that applied.
    token_type      text   `uncached_input`, `cached_input`, `output`; `rounding` has none.
    tokens          number Number of tokens; null for rounding.
    usd_per_million number Price per million tokens; null for rounding.
    cost_usd        number Tokens times price, exact, twelve decimals.
    requests        number Number of requests, counted once: on the row of uncached input.
    amount_nano_usd number The row's share of the ledger, in nano-USD.
    end_user        free   End user that the requests named; null for none.
    labels          free   JSON of the labels that the project keeps; null for none.
""")


class UsagePages:
    """A window of time a page."""

    columns = COLUMNS

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._write = cells.line_writer(COLUMNS, raw=scope.raw)

    def page(self, cursor: str) -> ExportPage:
        window = buckets.window_read(self._scope, buckets.start_from(cursor, self._scope))
        return ExportPage(
            lines=[self._write(self._values(charge)) for charge in window.charges],
            nano=window.nano,
            cursor=buckets.cursor_after(self._scope, window),
            share=self._scope.share(window.end),
        )

    def _values(self, charge: buckets.BucketCharge) -> tuple[cells.Value, ...]:
        names, group, part = self._scope.names, charge.group, charge.part
        return (
            cells.time_text(charge.start),
            cells.time_text(charge.end),
            public_id("proj", group.project),
            names.projects.get(group.project),
            public_id("key", group.key),
            names.keys.get(group.key),
            group.model,
            group.price_version,
            part.token_type,
            part.tokens,
            None
            if part.rate_pico is None
            else cells.decimal_text(part.rate_pico, cells.MICRO_PLACES),
            cells.decimal_text(part.pico, cells.PICO_PLACES),
            part.requests,
            part.nano,
            group.end_user or None,
            group.labels or None,
        )
