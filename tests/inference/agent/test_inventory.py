"""What a host has, by Linux and by a recorded NVML; unknown values are None."""

from __future__ import annotations

from pathlib import Path

from inference.agent.inventory import inventory
from inference.contract.hosts import GpuState
from tests.support.nvml import RecordedNvml


def test_gpus_are_told_as_nvml_tells_them(tmp_path: Path) -> None:
    first, second = inventory(tmp_path, RecordedNvml()).gpus
    assert first == GpuState(
        name="NVIDIA H200",
        memory=150_754_820_096,
        memory_free=150_109_683_712,
        use=0.37,
        celsius=31,
        watts=76.412,
        errors=0,
    )
    assert second == GpuState(name="Tesla T4", memory=16_106_127_360, memory_free=1 << 30)


def test_a_host_without_a_driver_has_no_gpus(tmp_path: Path) -> None:
    told = inventory(tmp_path)
    assert told.gpus == [] and told.memory_free and told.disk_free


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    told = inventory(tmp_path / "nowhere")
    assert (told.disk, told.disk_free) == (None, None)
