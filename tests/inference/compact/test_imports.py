"""Policy needs no torch: it can be read, tested and reused on any machine."""

from __future__ import annotations

import subprocess
import sys

POLICY = ("schedule.scheduler", "schedule.outputs", "run.loop", "options", "config.shape")


def test_policy_imports_no_torch() -> None:
    modules = ", ".join(f"inference.compact.{name}" for name in POLICY)
    text = "inference.text.model_text, inference.engines.echo, inference.engines.admission"
    code = f"import sys, {modules}, {text}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
