"""Who issues invoices and on what terms, who may move how much money alone, and paid by whom."""

from django.core.exceptions import ImproperlyConfigured

from controlplane.settings import env

# Stands on every document; the lines of the address are separated by semicolons.
INVOICE_ISSUER = {
    "name": env.text("SLUICE_ISSUER_NAME", "Sluice"),
    "address": "\n".join(
        part.strip() for part in env.text("SLUICE_ISSUER_ADDRESS").split(";") if part.strip()
    ),
    "tax_id": env.text("SLUICE_ISSUER_TAX_ID"),
    "email": env.text("SLUICE_ISSUER_EMAIL"),
    "pay_to": env.text("SLUICE_ISSUER_PAY_TO"),
}
INVOICE_TERMS_DAYS = env.integer("SLUICE_INVOICE_TERMS_DAYS", 30, least=0, most=365)
# Days past the due date from which an invoice is overdue 1, 2 and 3.
DUNNING_DAYS = env.integers("SLUICE_DUNNING_DAYS", (1, 14, 30), count=3, least=1, most=3_650)
# What one person may put into an organization's wallet within a day; above it takes a second one.
GRANT_ALONE_USD = env.integer("SLUICE_GRANT_ALONE_USD", 1_000, least=0, most=1_000_000_000)
LOW_BALANCE_USD = env.integer("SLUICE_LOW_BALANCE_USD", 10, least=0, most=1_000_000_000)

# Payments that Stripe reports. Several secrets while one takes the place of another.
STRIPE_WEBHOOK = env.boolean("SLUICE_STRIPE_WEBHOOK", False)
STRIPE_SECRETS = env.words("SLUICE_STRIPE_SECRET")
STRIPE_SECRET_CHARS_MIN = 32
if STRIPE_WEBHOOK and not STRIPE_SECRETS:
    raise ImproperlyConfigured("SLUICE_STRIPE_WEBHOOK is on, so SLUICE_STRIPE_SECRET must be set.")
if any(len(one) < STRIPE_SECRET_CHARS_MIN for one in STRIPE_SECRETS):
    raise ImproperlyConfigured(
        f"SLUICE_STRIPE_SECRET must have at least {STRIPE_SECRET_CHARS_MIN} characters."
    )
# A page of Stripe's on which a customer pays; an order's reference is appended to it.
STRIPE_LINK = env.address("SLUICE_STRIPE_LINK", ("https",), chars_max=500)
