"""The devices that tests run on: those that this machine has."""

from __future__ import annotations

import torch

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
