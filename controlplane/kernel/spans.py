"""The table of spans: seven stages and their layers, in order. A span's name is its module's path.

`s3_tokenize.window` is measured around `gateway/s3_tokenize/window.py`; a span with `remote` set is
measured elsewhere (proxy, network, node) and listed in `s5_infer/remote_spans.py` or
`s1_admission/arrival.py`. A test holds folders, this table and the README's table equal.
"""

import struct
from array import array
from collections.abc import Sequence

import msgspec

ABSENT = -(2**31)
_TIME_US_MAX = 2**31 - 1


class Span(msgspec.Struct, frozen=True):
    """One row of the table; `index` is its place in a recorded request's arrays."""

    index: int
    stage: str
    layer: str
    what: str
    remote: bool = False

    @property
    def name(self) -> str:
        return f"{self.stage}.{self.layer}" if self.layer else self.stage


STAGES: tuple[tuple[str, str, int], ...] = (
    ("s1_admission", "Gateway: authentication, schema, limits, hold", 5_000),
    ("s2_balance", "Load balancer: region, health, load", 2_000),
    ("s3_tokenize", "Tokenizer: template, encode, window, block hashes", 3_000),
    ("s4_route", "Model router: rules, prefix index, node", 1_000),
    ("s5_infer", "Inference: network, queue, prefill, decode", 800_000),
    ("s6_finish", "Post-processing: detokenize, stop, safety, serialize", 5_000),
    ("s7_bill", "Billing: price, settle", 1_000),
)


_LAYERS: tuple[tuple[str, str, str, bool], ...] = (
    ("s1_admission", "arrival", "time before the gateway, reported by a trusted proxy", True),
    ("s1_admission", "authenticate", "key format, checksum, HMAC, expiry, scope", False),
    ("s1_admission", "body", "read the body within its bounds", False),
    ("s1_admission", "schema", "parse and check every parameter; rule and plan", False),
    ("s1_admission", "claim", "an Idempotency-Key: a retry is charged once", False),
    ("s1_admission", "limits", "requests and tokens per minute", False),
    ("s1_admission", "hold", "reserve the upper bound of the cost", False),
    ("s2_balance", "health", "nodes that can serve the model now", False),
    ("s2_balance", "proximity", "regions in order of nearness", False),
    ("s2_balance", "load", "least loaded cluster", False),
    ("s3_tokenize", "assemble", "stored template and its variables to messages", False),
    ("s3_tokenize", "template", "messages to one prompt text", False),
    ("s3_tokenize", "encode", "text to token ids", False),
    ("s3_tokenize", "window", "prompt plus output within the context", False),
    ("s3_tokenize", "blocks", "salted chain of block hashes", False),
    ("s4_route", "rules", "what the plan's step asks for: pool, priority, wait", False),
    ("s4_route", "saturation", "wait for a node with room, or shed", False),
    ("s4_route", "prefix", "cached tokens per node", False),
    ("s4_route", "node", "lowest cost among the candidates", False),
    ("s5_infer", "network", "to the node and back", True),
    ("s5_infer", "queue", "waiting on the node", True),
    ("s5_infer", "prefill", "prompt into the KV cache", True),
    ("s5_infer", "decode", "one token per pass; overlaps with stage 6", True),
    ("s6_finish", "detokenize", "token ids to UTF-8 safe text", False),
    ("s6_finish", "stop", "stop strings across token borders", False),
    ("s6_finish", "safety", "secrets, personal data, classifier", False),
    ("s6_finish", "tools", "tool calls out of the text", False),
    ("s6_finish", "serialize", "chunks or body in the client's shape", False),
    ("s6_finish", "write", "to the client's socket", False),
    ("s7_bill", "price", "usage to nano-USD", False),
    ("s7_bill", "settle", "charge on the ledger, durable", False),
)


def _table() -> tuple[Span, ...]:
    rows: list[Span] = []
    for stage, what, _ in STAGES:
        rows.append(Span(len(rows), stage, "", what))
        for owner, layer, text, remote in _LAYERS:
            if owner == stage:
                rows.append(Span(len(rows), stage, layer, text, remote))
    return tuple(rows)


SPANS: tuple[Span, ...] = _table()
INDEX: dict[str, int] = {span.name: span.index for span in SPANS}
_TIMES = struct.Struct(f"<{2 * len(SPANS)}i")


def pack_spans(starts_us: Sequence[int], durations_us: Sequence[int]) -> bytes:
    """All starts after arrival, then all durations: int32 microseconds, little-endian.

    A start is ABSENT where a span did not run, and negative for what came before arrival. What
    int32 cannot hold becomes the nearest that it can: a measurement never breaks its request.
    """
    try:
        return _TIMES.pack(*starts_us, *durations_us)
    except struct.error:
        times = [*starts_us, *durations_us]
        return array("i", [min(max(time, ABSENT), _TIME_US_MAX) for time in times]).tobytes()


def unpack_spans(data: bytes) -> list[tuple[int, int]]:
    """(start, duration) by span index; raises ValueError on a length that is not two halves."""
    values = array("i")
    if len(data) % (2 * values.itemsize):
        raise ValueError("spans: length is not two halves of int32")
    values.frombytes(data)
    half = len(values) // 2
    return list(zip(values[:half], values[half:], strict=True))
