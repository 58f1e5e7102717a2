"""Put the charge on the ledger and give back what was held beyond it."""

from controlplane.gateway.answer import Charge
from controlplane.gateway.call import Call
from controlplane.gateway.ports import CountSource, Hold, Ledger, Settlement
from controlplane.gateway.refusal import NO_RETRY, Refusal
from controlplane.gateway.snapshot import ModelRecord
from controlplane.kernel.spans import INDEX

SETTLE = INDEX["s7_bill.settle"]
# Whose count it is, in the ledger's words; all others are a node's.
SOURCES: dict[str, CountSource] = {"": "gateway", "estimate": "estimate"}


async def settle_charge(
    call: Call, hold: Hold, charge: Charge, ledger: Ledger, *, model: ModelRecord
) -> None:
    """Durable when it returns; raises `LedgerAway` after the ledger's own bound.

    `model` is the one that served, which may be another than the hold's.
    """
    began = call.spans.clock()
    try:
        await ledger.settle(
            Settlement(
                request=hold.request,
                organization=hold.organization,
                project=hold.project,
                key=hold.key,
                budgets=hold.budgets,
                held_nano=hold.amount_nano,
                amount_nano=charge.amount_nano,
                counts=charge.counts,
                model=model.name,
                price=model.price,
                source=SOURCES.get(charge.usage.source, "node"),
                exactly=hold.exactly,
            )
        )
    finally:
        call.spans.add(SETTLE, began)


def charge_delayed() -> Refusal:
    """503 after the work was done: not to be retried, since the charge is still made, once."""
    return Refusal(
        503,
        "ledger_unavailable",
        "The charge could not be recorded in time, so the end of the response is withheld. The "
        "generated output will be charged later.",
        kind="service_unavailable_error",
        headers=NO_RETRY,
    )
