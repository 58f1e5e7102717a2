"""A gateway is ready only while requests would be served: with a configuration that is not old."""

from __future__ import annotations

import pytest

from controlplane.bridge.configuration import snapshot
from controlplane.bridge.configuration.keys import SNAPSHOT_AGE_S_MAX
from controlplane.bridge.process.compose import RunningGateway, build_gateway
from controlplane.kernel.clock import monotonic_s
from tests.support.waiting import until


async def test_a_gateway_whose_configuration_cannot_be_read_is_not_ready(
    database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway: RunningGateway = build_gateway()
    await gateway.start()
    try:
        await until(lambda: gateway.readiness()["ready"])
        later_s = SNAPSHOT_AGE_S_MAX + 1
        monkeypatch.setattr(snapshot, "monotonic_s", lambda: monotonic_s() + later_s)
        # As if no reading had ended since: the one that is under way is given up.
        monkeypatch.setattr(snapshot, "QUERY_S_MAX", 0.0)
        facts = gateway.readiness()
        assert not facts["ready"] and "too old" in facts["problems"][0]
        assert facts["configuration_age_s"] > SNAPSHOT_AGE_S_MAX
        page = (await gateway.metrics(late_s=0.0)).decode()
        assert "sluice_gateway_ready 0" in page
        monkeypatch.undo()
        await until(lambda: gateway.readiness()["ready"])
    finally:
        await gateway.stop()
