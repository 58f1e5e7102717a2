"""Configuration documents to begin with, one for each purpose."""

from pathlib import Path

READY = Path(__file__).resolve().parent


def ready_names() -> list[str]:
    return sorted(path.stem for path in READY.glob("*.yaml"))
