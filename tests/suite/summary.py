"""What a run could not try on this machine, and why: its last lines say it."""

from __future__ import annotations

import pytest

_LEFT_OUT: dict[str, str] = {}


def left_out(what: str, why: str) -> None:
    """To be called where tests are collected that cannot run here."""
    _LEFT_OUT[what] = why


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The processes of a run tell the one that started them."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = _LEFT_OUT


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """One of them has ended."""
    _LEFT_OUT.update(getattr(node, "workeroutput", {}).get("left_out", {}))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each."""
    for what, why in sorted(_LEFT_OUT.items()):
        terminalreporter.write_line(f"Not run on this machine: {what}: {why}", yellow=True)
