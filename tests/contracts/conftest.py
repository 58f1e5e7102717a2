"""Each suite runs twice: on the fake in memory, and on the adapter with its real server."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.processes)])
def kind(request: pytest.FixtureRequest) -> str:
    """Which of the two; the servers are there for the real one alone."""
    if request.param == "real":
        for server in ("database", "redis_url"):
            request.getfixturevalue(server)
    which: str = request.param
    return which
