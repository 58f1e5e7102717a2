"""A bounded sample of requests, with what each row alone knows: its receipt and its spans."""

from typing import NamedTuple

from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors_requests import RequestFilter, request_rows

SAMPLE_ROWS_MAX = 500


class Sampled(NamedTuple):
    """One request that read a prompt."""

    prompt_tokens: int
    cached_tokens: int
    spans: bytes
    receipt: bytes


def request_sample(wanted: RequestFilter) -> list[Sampled]:
    """The newest requests that match and read a prompt; raises TooMuchToRead."""
    with bounded_read([wanted.organization]):
        rows = request_rows(wanted).filter(prompt_tokens__gt=0).order_by("-request")
        return [
            Sampled(prompt, cached, bytes(spans), bytes(receipt))
            for prompt, cached, spans, receipt in rows.values_list(*Sampled._fields)[
                :SAMPLE_ROWS_MAX
            ]
        ]
