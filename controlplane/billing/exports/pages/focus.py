"""Cost and usage in the columns of FOCUS 1.2, with the names that 1.3 gave some of them.

A row is a kind of token of a group of requests, its rounding, or an entry of the journal that
changes what is owed. Columns of our own begin with `x_`, as FOCUS asks.
"""

from datetime import datetime
from typing import Any

from django.conf import settings

from controlplane.billing import cells
from controlplane.billing.documents.services import OWN as OF_A_DOCUMENT
from controlplane.billing.exports.models import ExportGrain
from controlplane.billing.exports.pages import buckets, lines
from controlplane.billing.exports.pages.scope import ExportPage, Scope
from controlplane.billing.ledger.models import EntryKind, JournalEntry
from controlplane.billing.months.periods import period_of
from controlplane.kernel.ids import public_id
from controlplane.kernel.money import PICO_PER_NANO

COLUMNS = cells.columns("""
    BilledCost          number Exact charge in USD, twelve decimals.
    BillingAccountId    text   Organization id.
    BillingAccountName  free   Its current name.
    BillingAccountType  text   `Organization`.
    BillingCurrency     text   `USD`.
    BillingPeriodEnd    time   End of the billing month, exclusive, UTC.
    BillingPeriodStart  time   Start of the billing month, UTC.
    ChargeCategory      text   `Usage`, `Credit`, `Tax` or `Adjustment`.
    ChargeClass         text   `Correction` for a correction of an earlier month, else null.
    ChargeDescription   free   What is charged, or the reason for an entry.
    ChargeFrequency     text   `Usage-Based`, or `One-Time` for an entry.
    ChargePeriodEnd     time   End of the hour or day, exclusive.
    ChargePeriodStart   time   Start of the hour or day; for a reversal, that of its charge.
    ConsumedQuantity    number Tokens; null except for Usage.
    ConsumedUnit        text   `Tokens`; null except for Usage.
    ContractedCost      number Equal to BilledCost: there are no commitment discounts.
    ContractedUnitPrice number Price per million tokens; null except for Usage.
    EffectiveCost       number Equal to BilledCost.
    HostProviderName    text   `Self-hosted`.
    InvoiceId           text   Invoice of the month; null until issued.
    InvoiceIssuerName   free   Issuer of this installation's invoices.
    ListCost            number Equal to BilledCost; a project's own price counts as its list price.
    ListUnitPrice       number Price per million tokens; null except for Usage.
    PricingCategory     text   `Standard`; null except for Usage.
    PricingQuantity     number Tokens in millions, exact; null except for Usage.
    PricingUnit         text   `1000000 Tokens`; null except for Usage.
    ProviderName        free   Equal to ServiceProviderName; its name before FOCUS 1.3.
    PublisherName       free   Equal to ServiceProviderName; its name before FOCUS 1.3.
    RegionId            text   Null: the ledger does not record a region.
    RegionName          text   Null.
    ResourceId          text   Model that served the request; null for entries.
    ResourceName        text   The same.
    ResourceType        text   `Model`; null for entries.
    ServiceCategory     text   `AI and Machine Learning`.
    ServiceName         text   `Sluice Inference`.
    ServiceProviderName free   Issuer of this installation's invoices.
    ServiceSubcategory  text   `Generative AI`.
    SkuId               text   Model and token type; null except for Usage.
    SkuMeter            text   `Input Tokens`, `Cached Input Tokens` or `Output Tokens`.
    SkuPriceDetails     text   JSON with `x_PriceVersion`; null except for Usage.
    SkuPriceId          text   SkuId, price version and rate; null except for Usage.
    SubAccountId        text   Project id; null for entries.
    SubAccountName      free   Its current name.
    SubAccountType      text   `Project`; null for entries.
    Tags                free   JSON of the labels that the project keeps; null without any.
    x_AmountNanoUsd     number The row's share of the ledger, in nano-USD.
    x_CredentialId      text   API key id; the Playground's has the user's digits.
    x_CredentialName    free   The key's current name.
    x_EndUser           free   End user that the requests named; null for none.
    x_EntryId           text   Journal entry id; null for requests.
    x_EntryKind         text   Its kind: `credit`, `adjustment`, `reversal` and others.
    x_Model             text   Model that served the request.
    x_PriceVersion      number Version of the model's prices that applied.
    x_RequestCount      number Number of requests, counted once: on the row of uncached input.
    x_Reverses          text   Request that a reversal corrects.
    x_TokenType         text   `uncached_input`, `cached_input`, `output`, `rounding`.
""")


HOST, SERVICE = "Self-hosted", "Sluice Inference"
METERS = {
    buckets.UNCACHED: "Input Tokens",
    buckets.CACHED: "Cached Input Tokens",
    buckets.OUTPUT: "Output Tokens",
}
SAME_ISSUER = ("InvoiceIssuerName", "ProviderName", "PublisherName", "ServiceProviderName")
CATEGORIES = {EntryKind.CREDIT: "Credit", EntryKind.TAX: "Tax"}
ENTRIES = "entries:"
TOKENS_PLACES = 1


class FocusPages:
    """First the charges, a window of time a page; then the entries."""

    columns = COLUMNS

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._write = cells.line_writer(COLUMNS, raw=scope.raw)
        self._step = buckets.STEPS[ExportGrain(scope.grain)]

    def page(self, cursor: str) -> ExportPage:
        if cursor.startswith(ENTRIES):
            return self._entries(cursor.removeprefix(ENTRIES))
        window = buckets.window_read(self._scope, buckets.start_from(cursor, self._scope))
        return ExportPage(
            lines=[self._line(self._charge(charge)) for charge in window.charges],
            nano=window.nano,
            cursor=buckets.cursor_after(self._scope, window) or ENTRIES,
            share=self._scope.share(window.end),
        )

    def _entries(self, cursor: str) -> ExportPage:
        found, after = lines.entries_read(self._scope, cursor, lines.CHARGING_KINDS)
        booked = lines.first_booked(self._scope, found)
        rows = [
            self._entry(entry, booked.get(entry.reverses) if entry.reverses else None)
            for entry in found
            if lines.owed_nano(entry)
        ]
        return ExportPage(
            lines=[self._line(row) for row in rows],
            nano=sum(lines.owed_nano(entry) for entry in found),
            cursor=ENTRIES + after if after else None,
            share=1.0,
        )

    def _line(self, row: dict[str, cells.Value]) -> str:
        return self._write([row.get(column.name) for column in COLUMNS])

    def _charge(self, charge: buckets.BucketCharge) -> dict[str, cells.Value]:
        names, group, part = self._scope.names, charge.group, charge.part
        priced = part.token_type != buckets.ROUNDING
        sku = f"{group.model}/{part.token_type}"
        row = self._common(charge.start, charge.start, charge.end, part.pico)
        row |= {
            "ChargeCategory": "Usage" if priced else "Adjustment",
            "ChargeDescription": f"{METERS[part.token_type]} of {group.model}"
            if priced
            else f"Rounding of requests to {group.model} to whole nano-USD",
            "ResourceId": group.model,
            "ResourceName": group.model,
            "ResourceType": "Model",
            "SubAccountId": public_id("proj", group.project),
            "SubAccountName": names.projects.get(group.project),
            "SubAccountType": "Project",
            "Tags": group.labels or None,
            "x_EndUser": group.end_user or None,
            "x_AmountNanoUsd": part.nano,
            "x_CredentialId": public_id("key", group.key),
            "x_CredentialName": names.keys.get(group.key),
            "x_Model": group.model,
            "x_PriceVersion": group.price_version,
            "x_RequestCount": part.requests,
            "x_TokenType": part.token_type,
        }
        if part.tokens is not None and part.rate_pico is not None:
            unit_price = cells.decimal_text(part.rate_pico, cells.MICRO_PLACES)
            row |= {
                "ConsumedQuantity": cells.decimal_text(part.tokens * 10, TOKENS_PLACES),
                "ConsumedUnit": "Tokens",
                "ContractedUnitPrice": unit_price,
                "ListUnitPrice": unit_price,
                "PricingCategory": "Standard",
                "PricingQuantity": cells.decimal_text(part.tokens, cells.MICRO_PLACES),
                "PricingUnit": "1000000 Tokens",
                "SkuId": sku,
                "SkuMeter": METERS[part.token_type],
                "SkuPriceDetails": f'{{"x_PriceVersion": {group.price_version}}}',
                "SkuPriceId": f"{sku}/{group.price_version}/{part.rate_pico}",
            }
        return row

    def _entry(self, entry: JournalEntry, reversed_at: datetime | None) -> dict[str, cells.Value]:
        """A reversal stands in the charge period of what it reverses."""
        nano = lines.owed_nano(entry)
        begin = self._bucket_of(reversed_at or entry.booked_at)
        row = self._common(entry.booked_at, begin, begin + self._step, nano * PICO_PER_NANO)
        earlier = reversed_at is not None and period_of(reversed_at) < period_of(entry.booked_at)
        if entry.idempotency.startswith(OF_A_DOCUMENT):
            row["InvoiceId"] = entry.reference
        row |= {
            "ChargeCategory": CATEGORIES.get(EntryKind(entry.kind), "Adjustment"),
            "ChargeClass": "Correction" if earlier else None,
            "ChargeDescription": entry.reason,
            "ChargeFrequency": "One-Time",
            "x_AmountNanoUsd": nano,
            "x_EntryId": public_id("entry", entry.id),
            "x_EntryKind": entry.kind,
            "x_Reverses": public_id("req", entry.reverses) if entry.reverses else None,
        }
        return row

    def _common(
        self, booked_at: datetime, start: datetime, end: datetime, pico: int
    ) -> dict[str, Any]:
        month, cost = period_of(booked_at), cells.decimal_text(pico, cells.PICO_PLACES)
        return {
            **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), cost),
            **dict.fromkeys(SAME_ISSUER, settings.INVOICE_ISSUER["name"]),
            "BillingAccountId": public_id("org", self._scope.organization),
            "BillingAccountName": self._scope.names.organization,
            "BillingAccountType": "Organization",
            "BillingCurrency": "USD",
            "BillingPeriodStart": cells.time_text(month.start),
            "BillingPeriodEnd": cells.time_text(month.end),
            "ChargeFrequency": "Usage-Based",
            "ChargePeriodStart": cells.time_text(start),
            "ChargePeriodEnd": cells.time_text(end),
            "HostProviderName": HOST,
            "InvoiceId": self._scope.invoices.get(month.name),
            "ServiceCategory": "AI and Machine Learning",
            "ServiceName": SERVICE,
            "ServiceSubcategory": "Generative AI",
        }

    def _bucket_of(self, moment: datetime) -> datetime:
        hour = moment.replace(minute=0, second=0, microsecond=0)
        return hour.replace(hour=0) if self._step > buckets.STEPS[ExportGrain.HOUR] else hour
