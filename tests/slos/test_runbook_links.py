"""Where a message leads: to the pages as people reach them, where that is known."""

from __future__ import annotations

import pytest
from django.conf import settings
from pytest import MonkeyPatch

from controlplane.slos.runbooks import runbook_url


@pytest.mark.parametrize(
    ("pages", "runbook", "link"),
    [
        ("", "ttft", "/runbooks/ttft"),
        ("https://sluice.example.org", "ttft", "https://sluice.example.org/runbooks/ttft"),
        ("https://example.org/llm", "ttft", "https://example.org/llm/runbooks/ttft"),
        ("https://sluice.example.org", "https://wiki.example/ttft", "https://wiki.example/ttft"),
    ],
)
def test_a_shipped_runbook_is_found_by_its_whole_address(
    monkeypatch: MonkeyPatch, pages: str, runbook: str, link: str
) -> None:
    monkeypatch.setattr(settings, "PAGES_URL", pages)
    assert runbook_url(runbook) == link
