"""OpenSLO: what goes out comes back the same; what cannot be counted is refused at its place."""

from __future__ import annotations

import pytest
import yaml
from django.core.exceptions import ValidationError

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import organization_scope
from controlplane.kernel.objectives.counting import IndicatorPart
from controlplane.slos.checks import ObjectiveDraft
from controlplane.slos.models import EVERYONE, Objective
from controlplane.slos.openslo.documents import Imported, openslo_export, openslo_import
from controlplane.slos.services import objective_create, objective_end, objective_update
from tests.support.objectives import draft

pytestmark = pytest.mark.usefixtures("database")
DRAFTS = (
    draft(shed_priority=1, stop_canary=True, shift_version=3, rules=("page_quick", "ticket_slow")),
    draft(
        name="Erstes Wort: schnell",
        indicator="ttft",
        threshold=350_000,
        target_ppm=999_500,
        period_days=28,
        route="all/v1",
        model="tiny",
        prompt_bucket=2,
        enabled=False,
        email="",
        runbook="https://wiki.example.org/ttft",
    ),
    draft(name="stage", indicator="stage:s4_route", threshold=1_000, absent_after_min=0),
    draft(
        name="zwei",
        indicator="all_of",
        parts=(IndicatorPart("availability"), IndicatorPart("ttft", 350_000)),
        pool="gold",
        region="eu",
    ),
)


def export() -> str:
    return openslo_export(actor=OPERATOR, organization=EVERYONE)


def take(text: str) -> Imported:
    return openslo_import(actor=OPERATOR, organization=EVERYONE, text=text)


def promises() -> list[dict[str, object]]:
    names = ObjectiveDraft.__struct_fields__
    with organization_scope([EVERYONE]):
        rows = Objective.objects.filter(ended_at=None).order_by("name")
        return [{name: getattr(row, name) for name in names} for row in rows]


def complaint(text: str) -> dict[str, list[str]]:
    with pytest.raises(ValidationError) as caught:
        take(text)
    found: dict[str, list[str]] = caught.value.message_dict
    return found


def test_objectives_come_back_as_they_went_out() -> None:
    made = [objective_create(actor=OPERATOR, organization=EVERYONE, draft=one) for one in DRAFTS]
    before, text = promises(), export()
    objective_end(actor=OPERATOR, objective=made[0])
    objective_update(actor=OPERATOR, objective=made[2], draft=DRAFTS[2].__class__(
        name="stage", indicator="stage:s4_route", threshold=9, target_ppm=500_000, team="x"
    ))  # fmt: skip
    assert promises() != before
    assert take(text) == Imported(made=1, updated=3)
    assert promises() == before
    assert export() == text


def test_the_export_is_openslo() -> None:
    objective_create(actor=OPERATOR, organization=EVERYONE, draft=DRAFTS[0])
    document = yaml.safe_load(export())
    assert (document["apiVersion"], document["kind"]) == ("openslo/v1", "SLO")
    spec = document["spec"]
    assert spec["timeWindow"] == [{"duration": "30d", "isRolling": True}]
    assert (spec["budgetingMethod"], spec["objectives"][0]["target"]) == ("Occurrences", 0.99)
    condition = spec["alertPolicies"][0]["spec"]["conditions"][0]
    assert condition["spec"]["condition"] == {
        "kind": "burnrate", "op": "gt", "threshold": 14.4, "lookbackWindow": "1h",
        "alertAfter": "0m",
    }  # fmt: skip
    assert condition["metadata"]["annotations"] == {"sluice/short_window": "5m"}


def test_what_cannot_be_taken_is_told_at_its_place_and_changes_nothing() -> None:
    objective_create(actor=OPERATOR, organization=EVERYONE, draft=DRAFTS[2])
    text = export()
    fine, wrong = text.replace("displayName: stage", "displayName: new"), "documents[1]"
    cases = {
        text.replace("type: sluice", "type: prometheus"):
            f"{wrong}.spec.indicator.spec.ratioMetric.good.metricSource.type",
        text.replace("duration: 30d", "duration: 1w"): f"{wrong}.spec.timeWindow",
        text.replace("kind: SLO", "kind: SLI"): f"{wrong}.kind",
        text.replace("Occurrences", "Timeslices"): f"{wrong}.spec.budgetingMethod",
        text.replace("target: 0.99", "target: 1.0"): f"{wrong}.target_ppm",
        text.replace("target: 0.99", "target: .nan"): f"{wrong}.spec.objectives[0].target",
        text.replace("sluice/team: platform", "sluice/team: 7"):
            f"{wrong}.metadata.annotations.sluice/team",
        text.replace("threshold: 1000", "threshold: fast"):
            f"{wrong}.spec.indicator.spec.ratioMetric.good.metricSource.spec.threshold",
    }  # fmt: skip
    for broken, place in cases.items():
        assert broken != text
        assert list(complaint(f"{fine}---\n{broken}")) == [place]
    assert list(complaint("a: &a [1]\nb: *a")) == ["yaml"]
    assert list(complaint("{")) == ["yaml"] == list(complaint(""))
    assert len(promises()) == 1
