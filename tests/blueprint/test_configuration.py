"""Configuration documents: what they say, refuse, change and leave alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import yaml
from django.conf import settings
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import connections

from controlplane.blueprint.configuration import configuration_apply, configuration_export
from controlplane.catalog.selectors import model_find, pool_find
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Action
from controlplane.routing.selectors import ruleset_in_force
from controlplane.tenants.selectors import project_named
from tests.support.money import rows, superuser_dsn
from tests.support.people import Cast, make_cast
from tests.support.rules import generates, make_models, publish

WHOLE = """\
sluice: 1
pools:
  - name: large
    nodes_min: 1
    nodes_max: 4
    warm_schedule:
      - {days: [mon], from: 08:00, to: 19:00, nodes_min: 2}
models:
  - name: small
    output_tokens_max: 512
    price: {input: 0.150, cached: "0.03", output: "0.60"}
  - name: new
    pool: large
    context_window: 8192
    output_tokens_default: 64
    output_tokens_max: 1024
    price: {input: 1, cached: "0.1", output: 4}
    purchase: {input: 0.5, cached: "0.050", output: 2}
routing:
  rules:
    - name: all
      match: {tasks: [generate]}
      steps: [{targets: [{model: new}], queue_s: 2.5}]
organizations:
  - name: Acme
    limits: {requests_per_min: 100, concurrency: 5}
    user_limits: {requests_per_day: 40}
    model_limits: {new: {tokens_per_min: 3000}}
    budget: {usd: 500, period: month, zone: Europe/Berlin, alerts: [100, 80]}
    projects:
      - name: web
        safety: off
        content: true
        weight: 3
        limits: {tokens_per_min: 5000}
        user_limits: {requests_per_min: 6}
        model_limits: {small: {requests_per_day: 7}, new: {}}
        budget: {usd: "0.5"}
        user_budget: {usd: 0.250, period: day}
        model_budgets: {new: {usd: 2, period: month, alerts: [90]}, small: {usd: 3}}
        keeps_days: 7
        prices:
          small: {input: 0.1, cached: 0, output: 0.4, batch_permille: 500}
      - name: night
    templates:
      - name: support
        project: web
        body:
          messages:
            - {role: system, content: Be brief.}
            - {role: user, content: "{{question}}"}
          variables: [{name: question}]
"""

ACME = "sluice: 1\norganizations:\n  - name: Acme\n"


@pytest.fixture
def cast(database: str) -> Cast:
    """People, and two models."""
    make_models("small", "other")
    return make_cast()


def apply(text: str) -> list[str]:
    return [change.path for change in configuration_apply(actor=OPERATOR, text=text, dry_run=False)]


def errors(text: str) -> dict[str, list[str]]:
    with pytest.raises(ValidationError) as refused:
        configuration_apply(actor=OPERATOR, text=text)
    found: dict[str, list[str]] = refused.value.message_dict
    return found


def test_a_whole_document_is_made_true_and_then_changes_nothing(cast: Cast) -> None:
    assert apply(WHOLE)
    assert apply(WHOLE) == []
    exported = configuration_export(actor=OPERATOR)
    assert apply(exported) == []
    found = yaml.safe_load(exported)
    acme = next(one for one in found["organizations"] if one["name"] == "Acme")
    assert acme["budget"] == {
        "usd": "500.00", "period": "month", "zone": "Europe/Berlin", "alerts": [80, 100],
    }  # fmt: skip
    assert acme["limits"] == {"requests_per_min": 100, "concurrency": 5}
    web = next(one for one in acme["projects"] if one["name"] == "web")
    assert (web["safety"], web["content"], web["weight"]) == ("off", True, 3)
    assert web["budget"] == {"usd": "0.50"}
    assert web["prices"] == {
        "small": {"input": "0.10", "cached": "0.00", "output": "0.40", "batch_permille": 500}
    }
    small = next(one for one in found["models"] if one["name"] == "small")
    assert small["price"] == {"input": "0.15", "cached": "0.03", "output": "0.60"}
    bought = {one["name"]: one["purchase"] for one in found["models"]}
    assert bought["new"] == {"input": "0.50", "cached": "0.05", "output": "2.00"}
    assert bought["small"] is None
    assert apply("{sluice: 1, models: [{name: new, purchase: null}]}")
    assert apply("{sluice: 1, models: [{name: new, purchase: null}]}") == []
    assert list(
        errors("{sluice: 1, models: [{name: new, purchase: {input: 1, cached: 2, output: 1}}]}")
    ) == ["models[0].cached_pico"]
    assert found["routing"]["rules"][0]["steps"][0]["queue_s"] == 2.5
    assert acme["templates"][0]["body"]["messages"][1]["content"] == "{{question}}"


def web_of(exported: str) -> dict[str, Any]:
    acme = next(one for one in yaml.safe_load(exported)["organizations"] if one["name"] == "Acme")
    return next(one for one in acme["projects"] if one["name"] == "web")


def test_parts_of_end_users_and_models_are_set_exported_and_end(cast: Cast) -> None:
    apply(WHOLE)
    exported = configuration_export(actor=OPERATOR)
    web = web_of(exported)
    assert web["keeps_days"] == 7
    assert web["user_limits"] == {"requests_per_min": 6}
    assert web["model_limits"] == {"small": {"requests_per_day": 7}}
    assert web["user_budget"] == {"usd": "0.25", "period": "day"}
    assert web["model_budgets"] == {
        "new": {"usd": "2.00", "period": "month", "alerts": [90]},
        "small": {"usd": "3.00"},
    }
    text = "sluice: 1\norganizations:\n  - name: Acme\n    user_limits: null\n    projects:\n"
    text += "      - name: web\n        user_budget: null\n        model_limits: {}\n"
    text += "        model_budgets: {new: {usd: 2, period: month, alerts: [90]}}\n"
    assert apply(text) == [
        "organizations[0].user_limits",
        *(f"organizations[0].projects[0].{name}" for name in ("model_limits", "user_budget")),
        "organizations[0].projects[0].model_budgets",
    ]
    web = web_of(configuration_export(actor=OPERATOR))
    assert (web["model_limits"], web["user_budget"]) == ({}, None)
    assert web["model_budgets"].keys() == {"new"}
    assert web["user_limits"] and web["limits"] and web["budget"]
    left = rows("SELECT model, per_user FROM rate_limits WHERE scope = 'organization'")
    assert sorted(left) == [("", False), ("new", False)]
    assert apply(exported)
    assert configuration_export(actor=OPERATOR) == exported


def test_a_dry_run_tells_the_same_and_changes_nothing(cast: Cast) -> None:
    before = configuration_export(actor=OPERATOR)
    audited = rows("SELECT count(*) FROM audit_entries")
    tried = configuration_apply(actor=OPERATOR, text=WHOLE)
    assert configuration_export(actor=OPERATOR) == before
    assert rows("SELECT count(*) FROM audit_entries") == audited
    assert tried == configuration_apply(actor=OPERATOR, text=WHOLE, dry_run=False)
    told = {change.path: (change.before, change.after) for change in tried}
    assert told["models[0].output_tokens_max"] == (1024, 512)
    assert told["organizations[0].limits"][0] is None


def test_a_document_is_one_act_however_many_changes_it_makes(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "CHANGES_PER_MIN_MAX", 2)
    made = configuration_apply(actor=cast.stella, text=WHOLE, dry_run=False)
    assert len(made) > 2 and project_named(cast.acme, name="web")


def test_what_is_left_out_stays_and_null_takes_away(cast: Cast) -> None:
    apply(WHOLE)
    text = "sluice: 1\norganizations:\n  - name: Acme\n    projects:\n      - name: web\n"
    assert apply(text + "        weight: 4\n") == ["organizations[0].projects[0].weight"]
    assert apply(text + "        limits: null\n        budget:\n        prices: {}\n") == [
        "organizations[0].projects[0].limits",
        "organizations[0].projects[0].budget",
        "organizations[0].projects[0].prices",
    ]
    exported = yaml.safe_load(configuration_export(actor=OPERATOR, names=["Acme"]))
    web = exported["organizations"][0]["projects"][1]
    assert (web["weight"], web["limits"], web["budget"], web["prices"]) == (4, None, None, {})
    assert exported["organizations"][0]["limits"]["concurrency"] == 5


def test_it_is_all_or_nothing(cast: Cast) -> None:
    broken = WHOLE.replace("weight: 3", "weight: 3000")
    assert list(errors(broken)) == ["organizations[0].projects[0].weight"]
    with pytest.raises(ValidationError):
        apply(broken)
    assert pool_find(name="large") is None and ruleset_in_force() is None


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ("sluice: 1\npools:\n  - name: x\n    size: 1\n", "pools[0].size", 4),
        ("sluice: 1\nmodels:\n  - pool: x\n", "models[0].name", 3),
        ("sluice: 1\nmore: 1\n", "more", 2),
        ("sluice: 2\n", "sluice", 1),
        ("sluice: 1\nmodels:\n  - name: new\n", "models[0].pool", 3),
        (
            "sluice: 1\nrouting:\n  rules:\n    - name: a\n      step: 1\n",
            "routing.rules[0].step",
            5,
        ),
        ("sluice: 1\norganizations:\n  - name: Nobody\n", "organizations[0].name", 3),
        (
            "sluice: 1\nmodels:\n  - name: small\n    price: {input: x, cached: 0, output: 0}\n",
            "models[0].price",
            4,
        ),
        ("sluice: 1\npools:\n  - name: x\n  - name: x\n", "pools[1].name", 4),
        (ACME + "    limits: {concurrency: 0}\n", "organizations[0].limits.concurrency", 4),
        (
            ACME + "    model_limits:\n      gone: {concurrency: 1}\n",
            "organizations[0].model_limits.gone.model",
            5,
        ),
        (
            ACME + "    projects:\n      - name: web\n        user_budget: {usd: 1, alerts: [9]}\n",
            "organizations[0].projects[0].user_budget.alerts",
            6,
        ),
        (
            ACME + "    projects:\n      - name: web\n        model_budgets: {small: {usd: x}}\n",
            "organizations[0].projects[0].model_budgets.small.usd",
            6,
        ),
    ],
)
def test_errors_have_their_path_and_line(cast: Cast, text: str, path: str, line: int) -> None:
    found = errors(text)
    assert list(found) == [path]
    assert f"(line {line})" in found[path][0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: [",
        "a: 1\na: 2\n",
        "a: &x 1\nb: *x\n",
        "--- 1\n--- 2\n",
        "!!python/object/apply:os.system [id]",
        "a: " + "[" * 100 + "]" * 100,
        "x" * 1_000_001,
        "? [a]\n: 1\n",
        "sluice: !!int one\n",
        "sluice: !!timestamp now\n",
        "sluice: " + "1" * 5_000,
        'models: [{name: "a\\0b"}]',
        'models: [{name: "\\ud800"}]',
    ],
    ids=[
        "empty",
        "broken",
        "twice",
        "alias",
        "two",
        "tag",
        "deep",
        "long",
        "list as a name",
        "integer tag",
        "time tag",
        "endless number",
        "NUL",
        "half a pair",
    ],
)
def test_what_is_no_plain_yaml_is_refused(cast: Cast, text: str) -> None:
    assert errors(text)


def test_only_who_runs_the_installation_may(cast: Cast) -> None:
    for actor in (cast.alice, cast.bob):
        with pytest.raises(PermissionDenied, match=Action.CONFIG_MANAGE):
            configuration_export(actor=actor)
        with pytest.raises(PermissionDenied):
            configuration_apply(actor=actor, text=WHOLE)
    changes = configuration_apply(actor=cast.stella, text=WHOLE, dry_run=False)
    assert changes
    labels = rows("SELECT DISTINCT actor_label FROM audit_entries WHERE action = 'budget.set'")
    assert labels == [("stella@example.org",)]


def test_staff_cannot_say_what_a_driver_runs(cast: Cast) -> None:
    text = "sluice: 1\npools:\n  - name: default\n    start_command: reboot\n"
    assert list(errors(text)) == ["pools[0].start_command"]


def test_no_secret_and_no_key_is_in_an_export(cast: Cast) -> None:
    exported = configuration_export(actor=OPERATOR)
    assert "sk_" not in exported and "start_command" not in exported


def test_a_rule_that_was_published_meanwhile_is_replaced_by_a_new_version(cast: Cast) -> None:
    publish(generates("first", "small"))
    apply(WHOLE)
    in_force = ruleset_in_force()
    assert in_force is not None and in_force.version == 2
    model = model_find(name="small")
    assert model is not None and model.output_tokens_max == 512
    assert project_named(cast.acme, name="night") is not None


def test_budgets_are_locked_in_the_order_in_which_holds_lock_them(cast: Cast) -> None:
    """By id, whatever their order in the document: else it and a hold wait for each other."""
    text = "sluice: 1\norganizations:\n  - name: Acme\n    projects:\n"
    project = "      - name: {}\n        budget: {{usd: {}}}\n"
    for name in ("zebra", "ant"):
        apply(text + project.format(name, 1))
    older, younger = (one for (one,) in rows("SELECT id FROM budgets ORDER BY id"))
    both = text + project.format("ant", 2) + project.format("zebra", 2)
    with psycopg.connect(superuser_dsn()) as hold, ThreadPoolExecutor(1) as pool:
        hold.execute("SELECT 1 FROM budgets WHERE id = %s FOR UPDATE", [older])
        applied = pool.submit(apply_apart, both)
        while not rows("SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert not applied.done()
        hold.execute("SELECT 1 FROM budgets WHERE id = %s FOR UPDATE NOWAIT", [younger])
        hold.rollback()
        assert len(applied.result()) == 2


def apply_apart(text: str) -> list[str]:
    """On a connection of this thread's own."""
    try:
        return apply(text)
    finally:
        connections.close_all()
