"""`SLUICE_SHARED_FIGURES=false`: figures of all tenants are for staff alone."""

from __future__ import annotations

import pytest
from django.test import override_settings

from tests.support.people import Cast, make_cast, signed_in

SHARED = ("/latency", "/stages", "/insights/stages", "/insights/comparison")


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def test_members_see_figures_of_all_tenants_unless_the_operator_shares_none(cast: Cast) -> None:
    bob = signed_in(cast.bob)
    stage_map = f"/api/insights/organizations/{cast.acme.id}/stage-map"
    for path in (*SHARED, stage_map):
        assert bob.get(path).status_code == 200, path
    assert "The seven stages" in bob.get("/").content.decode()
    with override_settings(SHARED_FIGURES=False):
        for path in (*SHARED, stage_map):
            assert bob.get(path).status_code == 403, path
        assert "Only staff of this installation" in bob.get("/latency").content.decode()
        page = bob.get("/").content.decode()
        assert "The seven stages" not in page and "/latency" not in page
        cast.alice.is_staff = True
        cast.alice.save()
        for path in SHARED:
            assert signed_in(cast.alice).get(path).status_code == 200, path
