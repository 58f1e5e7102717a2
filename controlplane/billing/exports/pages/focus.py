"""Cost and usage in the columns of FOCUS 1.2, with the names that 1.3 gave some of them.

A row is a kind of token of a group of requests, its rounding, or an entry of the journal that
changes what is owed. Columns of our own begin with `x_`, as FOCUS asks.
"""

from datetime import datetime
from typing import Any

from django.conf import settings

from controlplane.billing.cells import (
    MICRO_PLACES,
    PICO_PLACES,
    Value,
    decimal_text,
    line_writer,
    time_text,
)
from controlplane.billing.documents.services import OWN as OF_A_DOCUMENT
from controlplane.billing.exports.models import ExportGrain
from controlplane.billing.exports.pages.buckets import (
    CACHED,
    OUTPUT,
    ROUNDING,
    STEPS,
    UNCACHED,
    BucketCharge,
    cursor_after,
    start_from,
    window_read,
)
from controlplane.billing.exports.pages.entries import (
    CHARGING_KINDS,
    entries_read,
    first_booked,
    owed_nano,
)
from controlplane.billing.exports.pages.focus_columns import COLUMNS
from controlplane.billing.exports.pages.scope import ExportPage, Scope
from controlplane.billing.ledger.models import EntryKind, JournalEntry
from controlplane.billing.months.periods import period_of
from controlplane.kernel.ids import public_id
from controlplane.kernel.money import PICO_PER_NANO

HOST, SERVICE = "Self-hosted", "Sluice Inference"
METERS = {UNCACHED: "Input Tokens", CACHED: "Cached Input Tokens", OUTPUT: "Output Tokens"}
CATEGORIES = {EntryKind.CREDIT: "Credit", EntryKind.TAX: "Tax"}
ENTRIES = "entries:"
TOKENS_PLACES = 1


class FocusPages:
    """First the charges, a window of time a page; then the entries."""

    columns = COLUMNS

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._write = line_writer(COLUMNS, raw=scope.raw)
        self._step = STEPS[ExportGrain(scope.grain)]

    def page(self, cursor: str) -> ExportPage:
        """The page after a cursor; the empty one stands before all."""
        if cursor.startswith(ENTRIES):
            return self._entries(cursor.removeprefix(ENTRIES))
        window = window_read(self._scope, start_from(cursor, self._scope))
        return ExportPage(
            lines=[self._line(self._charge(charge)) for charge in window.charges],
            nano=window.nano,
            cursor=cursor_after(self._scope, window) or ENTRIES,
            share=self._scope.share(window.end),
        )

    def _entries(self, cursor: str) -> ExportPage:
        found, after = entries_read(self._scope, cursor, CHARGING_KINDS)
        booked = first_booked(self._scope, found)
        rows = [
            self._entry(entry, booked.get(entry.reverses) if entry.reverses else None)
            for entry in found
            if owed_nano(entry)
        ]
        return ExportPage(
            lines=[self._line(row) for row in rows],
            nano=sum(owed_nano(entry) for entry in found),
            cursor=ENTRIES + after if after else None,
            share=1.0,
        )

    def _line(self, row: dict[str, Value]) -> str:
        return self._write([row.get(column.name) for column in COLUMNS])

    def _charge(self, charge: BucketCharge) -> dict[str, Value]:
        names, group, part = self._scope.names, charge.group, charge.part
        priced = part.token_type != ROUNDING
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
            "x_AmountNanoUsd": part.nano,
            "x_CredentialId": public_id("key", group.key),
            "x_CredentialName": names.keys.get(group.key),
            "x_Model": group.model,
            "x_PriceVersion": group.price_version,
            "x_RequestCount": part.requests,
            "x_TokenType": part.token_type,
        }
        if part.tokens is not None and part.rate_pico is not None:
            unit_price = decimal_text(part.rate_pico, MICRO_PLACES)
            row |= {
                "ConsumedQuantity": decimal_text(part.tokens * 10, TOKENS_PLACES),
                "ConsumedUnit": "Tokens",
                "ContractedUnitPrice": unit_price,
                "ListUnitPrice": unit_price,
                "PricingCategory": "Standard",
                "PricingQuantity": decimal_text(part.tokens, MICRO_PLACES),
                "PricingUnit": "1000000 Tokens",
                "SkuId": sku,
                "SkuMeter": METERS[part.token_type],
                "SkuPriceDetails": f'{{"x_PriceVersion": {group.price_version}}}',
                "SkuPriceId": f"{sku}/{group.price_version}/{part.rate_pico}",
            }
        return row

    def _entry(self, entry: JournalEntry, reversed_at: datetime | None) -> dict[str, Value]:
        """A reversal stands in the charge period of what it reverses."""
        nano = owed_nano(entry)
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
        month, cost = period_of(booked_at), decimal_text(pico, PICO_PLACES)
        invoice = self._scope.invoices.get(month.name)
        issuer = settings.INVOICE_ISSUER["name"]
        return {
            "BilledCost": cost,
            "BillingAccountId": public_id("org", self._scope.organization),
            "BillingAccountName": self._scope.names.organization,
            "BillingAccountType": "Organization",
            "BillingCurrency": "USD",
            "BillingPeriodStart": time_text(month.start),
            "BillingPeriodEnd": time_text(month.end),
            "ChargeFrequency": "Usage-Based",
            "ChargePeriodStart": time_text(start),
            "ChargePeriodEnd": time_text(end),
            "ContractedCost": cost,
            "EffectiveCost": cost,
            "HostProviderName": HOST,
            "InvoiceId": invoice,
            "InvoiceIssuerName": issuer,
            "ListCost": cost,
            "ProviderName": issuer,
            "PublisherName": issuer,
            "ServiceCategory": "AI and Machine Learning",
            "ServiceName": SERVICE,
            "ServiceProviderName": issuer,
            "ServiceSubcategory": "Generative AI",
        }

    def _bucket_of(self, moment: datetime) -> datetime:
        hour = moment.replace(minute=0, second=0, microsecond=0)
        return hour.replace(hour=0) if self._step > STEPS[ExportGrain.HOUR] else hour
