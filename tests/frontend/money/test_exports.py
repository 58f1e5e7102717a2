"""The form of exports: what it offers can be had, and nothing else is offered."""

from __future__ import annotations

import re

from controlplane.billing.exports.spec import GRAINS
from frontend.money.export_views import ExportForm
from tests.support.people import make_cast, signed_in


def test_every_kind_and_grain_that_is_offered_can_be_asked_for(database: str) -> None:
    cast = make_cast()
    page = signed_in(cast.alice).get("/exports").content.decode()
    kinds = page.partition('id="x-kind"')[2].partition("</select>")[0]
    offered = re.findall(r'value="([a-z:]+)"', kinds)
    forms = [ExportForm({"kind": kind, "period": "2026-10"}) for kind in offered]
    assert all(form.is_valid() for form in forms)
    made = [form.spec(cast.acme.id) for form in forms]
    wanted = [(kind, grain) for kind in GRAINS for grain in GRAINS[kind]]
    assert sorted((one.kind, one.grain) for one in made) == sorted(wanted)


def test_a_new_organization_is_offered_its_own_months_alone(database: str) -> None:
    page = signed_in(make_cast().alice).get("/exports").content.decode()
    months = page.partition('id="x-period"')[2].partition("</select>")[0]
    assert len(re.findall("<option", months)) == 1 and " selected>" in months
