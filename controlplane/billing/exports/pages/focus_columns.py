"""The head of the FOCUS file: columns of the specification by name, then our own."""

from controlplane.billing.cells import Cell, Column

COLUMNS = (
    Column("BilledCost", Cell.NUMBER, "Exact charge in USD, twelve decimals."),
    Column("BillingAccountId", Cell.TEXT, "Organization id."),
    Column("BillingAccountName", Cell.FREE, "Its current name."),
    Column("BillingAccountType", Cell.TEXT, "`Organization`."),
    Column("BillingCurrency", Cell.TEXT, "`USD`."),
    Column("BillingPeriodEnd", Cell.TIME, "End of the billing month, exclusive, UTC."),
    Column("BillingPeriodStart", Cell.TIME, "Start of the billing month, UTC."),
    Column("ChargeCategory", Cell.TEXT, "`Usage`, `Credit`, `Tax` or `Adjustment`."),
    Column(
        "ChargeClass", Cell.TEXT, "`Correction` for a correction of an earlier month, else null."
    ),
    Column("ChargeDescription", Cell.FREE, "What is charged, or the reason for an entry."),
    Column("ChargeFrequency", Cell.TEXT, "`Usage-Based`, or `One-Time` for an entry."),
    Column("ChargePeriodEnd", Cell.TIME, "End of the hour or day, exclusive."),
    Column(
        "ChargePeriodStart",
        Cell.TIME,
        "Start of the hour or day; for a reversal, that of its charge.",
    ),
    Column("ConsumedQuantity", Cell.NUMBER, "Tokens; null except for Usage."),
    Column("ConsumedUnit", Cell.TEXT, "`Tokens`; null except for Usage."),
    Column(
        "ContractedCost", Cell.NUMBER, "Equal to BilledCost: there are no commitment discounts."
    ),
    Column("ContractedUnitPrice", Cell.NUMBER, "Price per million tokens; null except for Usage."),
    Column("EffectiveCost", Cell.NUMBER, "Equal to BilledCost."),
    Column("HostProviderName", Cell.TEXT, "`Self-hosted`."),
    Column(
        "InvoiceId",
        Cell.TEXT,
        "Invoice of the month; null until issued.",
    ),
    Column("InvoiceIssuerName", Cell.FREE, "Issuer of this installation's invoices."),
    Column(
        "ListCost",
        Cell.NUMBER,
        "Equal to BilledCost; a project's own price counts as its list price.",
    ),
    Column("ListUnitPrice", Cell.NUMBER, "Price per million tokens; null except for Usage."),
    Column("PricingCategory", Cell.TEXT, "`Standard`; null except for Usage."),
    Column("PricingQuantity", Cell.NUMBER, "Tokens in millions, exact; null except for Usage."),
    Column("PricingUnit", Cell.TEXT, "`1000000 Tokens`; null except for Usage."),
    Column("ProviderName", Cell.FREE, "Equal to ServiceProviderName; its name before FOCUS 1.3."),
    Column("PublisherName", Cell.FREE, "Equal to ServiceProviderName; its name before FOCUS 1.3."),
    Column("RegionId", Cell.TEXT, "Null: the ledger does not record a region."),
    Column("RegionName", Cell.TEXT, "Null."),
    Column("ResourceId", Cell.TEXT, "Model that served the request; null for entries."),
    Column("ResourceName", Cell.TEXT, "The same."),
    Column("ResourceType", Cell.TEXT, "`Model`; null for entries."),
    Column("ServiceCategory", Cell.TEXT, "`AI and Machine Learning`."),
    Column("ServiceName", Cell.TEXT, "`Sluice Inference`."),
    Column("ServiceProviderName", Cell.FREE, "Issuer of this installation's invoices."),
    Column("ServiceSubcategory", Cell.TEXT, "`Generative AI`."),
    Column("SkuId", Cell.TEXT, "Model and token type; null except for Usage."),
    Column("SkuMeter", Cell.TEXT, "`Input Tokens`, `Cached Input Tokens` or `Output Tokens`."),
    Column("SkuPriceDetails", Cell.TEXT, "JSON with `x_PriceVersion`; null except for Usage."),
    Column("SkuPriceId", Cell.TEXT, "SkuId, price version and rate; null except for Usage."),
    Column("SubAccountId", Cell.TEXT, "Project id; null for entries."),
    Column("SubAccountName", Cell.FREE, "Its current name."),
    Column("SubAccountType", Cell.TEXT, "`Project`; null for entries."),
    Column(
        "Tags", Cell.TEXT, "Null: key tags are used for routing and are not recorded on the ledger."
    ),
    Column("x_AmountNanoUsd", Cell.NUMBER, "The row's share of the ledger, in nano-USD."),
    Column("x_CredentialId", Cell.TEXT, "API key id; the Playground's has the user's digits."),
    Column("x_CredentialName", Cell.FREE, "The key's current name."),
    Column("x_EntryId", Cell.TEXT, "Journal entry id; null for requests."),
    Column("x_EntryKind", Cell.TEXT, "Its kind: `credit`, `adjustment`, `reversal` and others."),
    Column("x_Model", Cell.TEXT, "Model that served the request."),
    Column("x_PriceVersion", Cell.NUMBER, "Version of the model's prices that applied."),
    Column(
        "x_RequestCount",
        Cell.NUMBER,
        "Number of requests, counted once: on the row of uncached input.",
    ),
    Column("x_Reverses", Cell.TEXT, "Request that a reversal corrects."),
    Column("x_TokenType", Cell.TEXT, "`uncached_input`, `cached_input`, `output`, `rounding`."),
)
