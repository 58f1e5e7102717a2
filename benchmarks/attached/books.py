"""What the product wrote down of each request, beside what clients and servers saw.

Imported once Django is set up.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from benchmarks.money.kills import price_charged
from controlplane.insights.load.samples import LoadSample
from controlplane.kernel.price import TokenCounts, charge_nano
from controlplane.kernel.spans import INDEX, unpack_spans
from tests.product.books import CHARGES, bills
from tests.support.money import rows
from tests.support.waiting import wait_for

PREFILL = INDEX["s5_infer.prefill"]
US_PER_S = 1_000_000


def request_of(seen: LoadSample) -> str:
    """The id of a request, in hex."""
    return seen.request.removeprefix("req_")


def counted() -> dict[str, int]:
    """Tokens of all that was charged so far."""
    ((uncached, cached, output),) = rows(
        "SELECT coalesce(sum(uncached), 0)::bigint, coalesce(sum(cached), 0)::bigint,"
        f" coalesce(sum(output), 0)::bigint FROM transfers WHERE kind IN {CHARGES}"
    )
    return {"prompt": uncached + cached, "cached": cached, "output": output}


def difference_nano(answers: Sequence[LoadSample], told: Sequence[Mapping[str, float]]) -> int:
    """Between each bill and the usage that its client was told; and between all tokens that the
    ledger (first of `told`) and the servers (second) have counted, priced.
    """
    booked = bills()
    price = price_charged()
    difference = 0
    for seen in answers:
        counts = TokenCounts.from_usage(seen.prompt_tokens, seen.cached_tokens, seen.output_tokens)
        difference += abs(booked[request_of(seen)].nano - charge_nano(price, counts))
    ledger, servers = (
        charge_nano(
            price, TokenCounts.from_usage(*(int(each[k]) for k in ("prompt", "cached", "output")))
        )
        for each in told
    )
    return difference + abs(ledger - servers)


def added_s(answers: Sequence[LoadSample]) -> list[float]:
    """Of each client's time to the first text, what the server before its node did not take."""
    wanted = {request_of(seen): seen.ttft_s for seen in answers}
    ids = [uuid.UUID(hex=each) for each in wanted]
    query = "SELECT request, spans FROM request_records WHERE request = ANY(%s)"
    wait_for(lambda: len(rows(query, ids)) == len(ids), "record of every request")
    return [
        wanted[request.hex] - unpack_spans(bytes(spans))[PREFILL][1] / US_PER_S
        for request, spans in rows(query, ids)
    ]
