"""What the host has: processor, memory and disk by Linux, GPUs by NVML. Unknown values are None."""

import os
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from inference.contract.hosts import REPORT_GPUS_MAX, GpuState, Inventory

KIBIBYTE = 1024
MILLIWATTS = 1000.0
CPU_FILE, MEMORY_FILE = Path("/proc/cpuinfo"), Path("/proc/meminfo")
Value = TypeVar("Value")


def inventory(folder: Path, nvml: Any = None) -> Inventory:
    """The host now; `folder` says which disk, `nvml` is the module or what stands for it."""
    memory = _memory(_text(MEMORY_FILE))
    disk = _known(lambda: shutil.disk_usage(folder), OSError)
    load = _known(lambda: os.getloadavg()[0], OSError)
    return Inventory(
        cpu=_cpu(_text(CPU_FILE)),
        cores=os.cpu_count(),
        load=None if load is None else round(load, 2),
        memory=memory.get("MemTotal"),
        memory_free=memory.get("MemAvailable"),
        disk=disk.total if disk else None,
        disk_free=disk.free if disk else None,
        gpus=gpus(nvml) if nvml is not None else [],
    )


def nvml_module() -> Any:
    """`pynvml`, ready to be asked; None where it or the driver is not there."""
    try:
        pynvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def gpus(nvml: Any) -> list[GpuState]:
    """All GPUs; a value that the driver refuses is None."""
    count = _known(nvml.nvmlDeviceGetCount, nvml.NVMLError) or 0
    return [_gpu(nvml, number) for number in range(min(count, REPORT_GPUS_MAX))]


def _gpu(nvml: Any, number: int) -> GpuState:
    def ask(name: str, *more: Any) -> Any:
        return _known(lambda: getattr(nvml, f"nvmlDeviceGet{name}")(handle, *more), nvml.NVMLError)

    handle = _known(lambda: nvml.nvmlDeviceGetHandleByIndex(number), nvml.NVMLError)
    if handle is None:
        return GpuState()
    memory, use, milliwatts = ask("MemoryInfo"), ask("UtilizationRates"), ask("PowerUsage")
    name = ask("Name")
    return GpuState(
        name=name.decode() if isinstance(name, bytes) else name,
        memory=memory.total if memory else None,
        memory_free=memory.free if memory else None,
        use=use.gpu / 100 if use else None,
        celsius=ask("Temperature", nvml.NVML_TEMPERATURE_GPU),
        watts=None if milliwatts is None else milliwatts / MILLIWATTS,
        errors=ask(
            "TotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        ),
    )


def _known(ask: Callable[[], Value], refused: type[Exception]) -> Value | None:
    try:
        return ask()
    except refused:
        return None


def _text(file: Path) -> str:
    return _known(lambda: file.read_text(errors="replace"), OSError) or ""


def _cpu(text: str) -> str | None:
    names = (line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line)
    return next(names, None)


def _memory(text: str) -> dict[str, int]:
    lines = (line.replace(":", " ").split() for line in text.splitlines())
    return {each[0]: int(each[1]) * KIBIBYTE for each in lines if len(each) == 3}
