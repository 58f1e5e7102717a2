"""C9: a document gives drafts of limits, budgets and prices, which change nothing until somebody
publishes them; and stored tools, as it gives templates. Applied by the command, as a program would.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command
from django.utils import timezone

from controlplane.billing.budgets.selectors import budget_list
from controlplane.catalog.selectors import model_find, price_in_force, prompt_get, prompt_versions
from controlplane.changes.limits import LimitChanges
from controlplane.changes.prices import PriceChanges
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.versions.models import State
from controlplane.quotas.selectors import rate_limit_map
from tests.support.people import Cast, make_cast
from tests.support.rules import make_models

DRAFTS = """\
sluice: 1
drafts:
  models:
    - {name: small, price: {input: "0.2", cached: "0.02", output: "0.8"}}
  organizations:
    - name: Acme
      limits: {requests_per_min: 100}
      projects:
        - name: web
          user_limits: {requests_per_min: 5}
          model_limits: {large: {tokens_per_min: 9000}}
          budget: {usd: "2.50", period: day, alerts: [80]}
          prices: {large: {input: "1", cached: "0.1", output: "4"}}
"""
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"description": "The weather in a city.", "parameters": PARAMETERS}


@pytest.fixture
def cast(database: str) -> Cast:
    make_models("small", "large")
    return make_cast()


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """The command, with a document: what it prints."""

    def called(action: str, document: str, *more: str) -> str:
        path, out = tmp_path / "sluice.yaml", io.StringIO()
        path.write_text(document)
        call_command("sluice", "config", action, str(path), *more, stdout=out)
        return out.getvalue()

    return called


def limits(cast: Cast) -> LimitChanges:
    return LimitChanges(cast.alice, cast.acme.id)


def test_c9_drafts_of_a_document_wait_to_be_published(cast: Cast, run: Any) -> None:
    assert "drafts.organizations[0].limits" in run("diff", DRAFTS)
    assert limits(cast).newest() == []
    run("apply", DRAFTS, "--yes")
    (draft,), (prices,) = limits(cast).newest(), PriceChanges(OPERATOR).newest()
    told = {one.name: len(one.fields) for one in limits(cast).differences(draft)}
    assert told == {
        "Acme": 1,
        "Project web, each end user": 1,
        "Project web, large": 1,
        "Budget of Project web": 3,
    }
    assert [one.name for one in PriceChanges(OPERATOR).differences(prices)] == [
        "small",
        "large, web",
    ]
    assert rate_limit_map(user=cast.alice) == {}

    # Applied again it says nothing new, and published the same document has nothing to draft.
    assert "drafts" not in run("diff", DRAFTS)
    run("apply", DRAFTS, "--yes")
    assert len(limits(cast).newest()) == 1
    limits(cast).publish(draft)
    PriceChanges(OPERATOR).publish(prices)
    assert rate_limit_map(user=cast.alice)[cast.acme.id].requests_per_min == 100
    (budget,) = budget_list(actor=cast.alice, organization=cast.acme.id)
    assert budget.allowance == 2_500_000_000
    small = model_find(name="small")
    assert small is not None
    price = price_in_force(model=small, at=timezone.now())
    assert price is not None and price.output_pico == 800_000
    run("apply", DRAFTS, "--yes")
    assert (len(limits(cast).newest()), len(PriceChanges(OPERATOR).newest())) == (1, 1)


def test_another_document_changes_its_draft_and_no_one_elses(cast: Cast, run: Any) -> None:
    mine = limits(cast).draft_create({"limits": []}, "by hand")
    run("apply", DRAFTS, "--yes")
    run("apply", DRAFTS.replace("100}", "200}"), "--yes")
    newest, before = limits(cast).newest()
    assert newest.content["limits"][0]["requests_per_min"] == 200
    assert (newest.revision, before.id) == (2, mine.id)
    assert before.content == {"limits": [], "budgets": []}


def test_drafts_that_a_document_no_longer_names_are_discarded(cast: Cast, run: Any) -> None:
    note = "from a configuration document"
    mine = limits(cast).draft_create({"limits": []}, note)
    run("apply", DRAFTS, "--yes")

    def waiting() -> tuple[int, int]:
        changes = limits(cast), PriceChanges(OPERATOR)
        limited, priced = ([v for v in of.newest() if v.state == State.DRAFT] for of in changes)
        assert mine.id in [version.id for version in limited], "somebody's own"
        return len(limited) - 1, len(priced)

    assert waiting() == (1, 1)
    # Without drafts a document says nothing of them.
    run("apply", "sluice: 1\npools: [{name: default, nodes_min: 1}]\n", "--yes")
    assert waiting() == (1, 1)
    models = DRAFTS.partition("  organizations:")[0]
    assert "Acme" in run("diff", models)
    assert waiting() == (1, 1)
    run("apply", models, "--yes")
    assert waiting() == (0, 1)
    run("apply", "sluice: 1\ndrafts: {}\n", "--yes")
    assert waiting() == (0, 0)
    assert "drafts" not in run("diff", "sluice: 1\ndrafts: {}\n")


def test_what_could_not_be_published_is_refused_whole(cast: Cast, run: Any) -> None:
    for document, told in (
        (DRAFTS.replace("100}", "0}"), "drafts.content.limits[0].requests_per_min"),
        (DRAFTS.replace("name: web", "name: gone"), "drafts.organizations[0].projects[0].name"),
        (DRAFTS.replace("name: small", "name: gone"), "drafts.models[0].name"),
        (DRAFTS.replace("user_limits:", "weight:"), "drafts.organizations[0].projects[0].weight"),
    ):
        with pytest.raises(CommandError) as refused:
            run("apply", document, "--yes")
        assert told in str(refused.value)
    assert limits(cast).newest() == []


def test_c9_stored_tools_are_made_and_exported(cast: Cast, run: Any) -> None:
    templates = [{"name": "weather", "body": {"tool": TOOL}}]
    organizations = [{"name": "Acme", "templates": templates}]
    document = yaml.safe_dump({"sluice": 1, "organizations": organizations})
    run("apply", document, "--yes")
    tool = prompt_get(actor=OPERATOR, organization_id=cast.acme.id, name="weather")
    (version,) = prompt_versions(actor=OPERATOR, template=tool)
    assert (version.state, version.body["tool"]["parameters"]) == ("published", PARAMETERS)
    out = io.StringIO()
    call_command("sluice", "config", "export", "--organization", "Acme", stdout=out)
    (exported,) = yaml.safe_load(out.getvalue())["organizations"]
    assert exported["templates"][0]["body"]["tool"]["description"] == TOOL["description"]
    assert "weather" not in run("diff", out.getvalue())
    templates[0]["body"] = {"tool": {**TOOL, "parameters": {"type": "thing"}}}
    with pytest.raises(CommandError, match="tool.parameters"):
        run("apply", yaml.safe_dump({"sluice": 1, "organizations": organizations}), "--yes")
