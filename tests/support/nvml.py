"""What NVML answered on a machine with two GPUs, one of which refuses some questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

RECORDED: tuple[dict[str, Any], ...] = (
    {
        "Name": "NVIDIA H200",
        "MemoryInfo": SimpleNamespace(
            total=150_754_820_096, free=150_109_683_712, used=645_136_384
        ),
        "UtilizationRates": SimpleNamespace(gpu=37, memory=12),
        "Temperature": 31,
        "PowerUsage": 76_412,
        "TotalEccErrors": 0,
    },
    {"Name": b"Tesla T4", "MemoryInfo": SimpleNamespace(total=16_106_127_360, free=1 << 30)},
)


class NvmlRefusal(Exception):
    """As `NVMLError_NotSupported`."""


@dataclass(frozen=True)
class RecordedNvml:
    """In place of the module `pynvml`, which is the port."""

    answers: tuple[Mapping[str, Any], ...] = RECORDED
    NVMLError: type[Exception] = NvmlRefusal
    NVML_TEMPERATURE_GPU: int = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED: int = 1
    NVML_VOLATILE_ECC: int = 0

    def nvmlDeviceGetCount(self) -> int:
        """How many there are."""
        return len(self.answers)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        """What the other questions take."""
        return number

    def __getattr__(self, name: str) -> Any:
        def ask(handle: int, *_: Any) -> Any:
            found = self.answers[handle].get(name.removeprefix("nvmlDeviceGet"))
            if found is None:
                raise NvmlRefusal(name)
            return found

        return ask
