"""Retention keeps up with what is written."""

from __future__ import annotations

from pytest import MonkeyPatch

from controlplane.telemetry import services


def test_rows_are_dropped_bite_by_bite_until_none_is_left(monkeypatch: MonkeyPatch) -> None:
    left = {"telemetry_drop_rollups": 12_000, "telemetry_drop_exemplars": 23_000}

    def scalar(statement: str, values: list[object]) -> int:
        name = next((each for each in left if each in statement), None)
        if name is None:
            return 0
        dropped = min(left[name], services.ROWS_DELETED_MAX)
        left[name] -= dropped
        return dropped

    monkeypatch.setattr(services, "_scalar", scalar)
    assert services.drop_old_partitions() == 35_000
    assert set(left.values()) == {0}
