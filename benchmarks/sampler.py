"""Where the CPU of a process goes: a sampler on its own CPU time, summed by part of the product.

Installed by `benchmarks.serve` only. A sample belongs to the innermost frame whose file is in the
table, so library code counts for the part that called it.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

INTERVAL_S = 0.001
PARTS: tuple[tuple[str, str], ...] = (
    *(
        (f"/gateway/{stage}/", stage)
        for stage in (
            "s1_admission",
            "s2_balance",
            "s3_tokenize",
            "s4_route",
            "s5_infer",
            "s6_finish",
            "s7_bill",
        )
    ),
    ("/gateway/openai/", "api shape"),
    ("/gateway/nodes/", "fleet link"),
    ("/bridge/fleet/", "fleet link"),
    ("/inference/contract/", "fleet link"),
    ("/bridge/limits/", "limiter"),
    ("/bridge/record/", "telemetry"),
    ("/gateway/after/record.py", "telemetry"),
    ("/bridge/", "ledger and keys"),
    ("/gateway/", "pipeline"),
    ("/controlplane/asgi.py", "pipeline"),
    ("/uvicorn/", "http server"),
    ("/websockets/", "fleet link"),
)


class Sampler:
    """Counts samples until `write`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def start(self) -> None:
        """Begin; one sample per millisecond of CPU time."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def write(self, path: Path) -> None:
        """Stop and write the counts as JSON."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        path.write_text(json.dumps(self.counts))

    def _sample(self, number: int, frame: FrameType | None) -> None:
        while frame is not None:
            name = frame.f_code.co_filename
            for mark, part in PARTS:
                if mark in name:
                    self.counts[part] += 1
                    return
            frame = frame.f_back
        self.counts["event loop"] += 1
