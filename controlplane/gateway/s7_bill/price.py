"""Usage to nano-USD, at the price that was in force when the request was admitted."""

from controlplane.gateway.answer import Charge
from controlplane.gateway.call import Call
from controlplane.kernel.price import Price, TokenCounts, charge_nano
from controlplane.kernel.spans import INDEX
from inference.contract.frames import Usage

PRICE = INDEX["s7_bill.price"]


def price_usage(call: Call, price: Price, usage: Usage) -> Charge:
    """Price what was delivered, by the model that served."""
    began = call.spans.clock()
    counts = TokenCounts.from_usage(
        usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens
    )
    charge = Charge(usage, counts, charge_nano(price, counts))
    call.spans.add(PRICE, began)
    return charge
