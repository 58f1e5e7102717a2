"""The devices that tests run on: those that this machine has; and where Triton is, if anywhere."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
# Beside the environment (`make test-triton`), or in it, where torch brought it.
TRITON_SITE = Path(__file__).parents[3] / ".triton"
TRITON_PATH = str(TRITON_SITE) if (TRITON_SITE / "triton").is_dir() else ""
HAS_TRITON = bool(TRITON_PATH) or find_spec("triton") is not None
