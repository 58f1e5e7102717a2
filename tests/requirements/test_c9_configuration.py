"""C9: configuration as code. Export, validate, diff, apply; what was exported changes nothing."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from controlplane.blueprint.configuration import configuration_apply, configuration_export
from controlplane.blueprint.ready import ready_names
from controlplane.blueprint.yamltext import write_yaml
from controlplane.composed.demo import demo_ensure
from controlplane.core.audit.entries import OPERATOR
from tests.support.people import make_cast
from tests.support.rules import make_models

NAMES = (
    "dispatch-rules",
    "context-validation",
    "health-checks",
    "rate-limits",
    "streaming-clients",
)
usd = st.decimals(0, 10**6, places=6).map(str)
# Of a million tokens.
rates = st.decimals(0, 10**5, places=6).map(str)
limits = st.none() | st.fixed_dictionaries(
    {}, optional={"requests_per_min": st.integers(1, 10**9), "concurrency": st.integers(1, 10**6)}
)
budgets = st.none() | st.fixed_dictionaries(
    {"usd": usd},
    optional={
        "period": st.sampled_from(["none", "day", "week", "month"]),
        "zone": st.sampled_from(["UTC", "Asia/Tokyo"]),
        "alerts": st.lists(st.integers(1, 100), unique=True, max_size=5),
    },
)
# Of each end user: without roll-over and alerts.
user_budgets = st.none() | st.fixed_dictionaries(
    {"usd": usd}, optional={"period": st.sampled_from(["day", "month"])}
)


def of_models(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    some = strategy.filter(lambda value: value is not None)
    return st.dictionaries(st.sampled_from(["small", "other"]), some, max_size=2)


prices = st.fixed_dictionaries(
    {"input": rates, "cached": st.just("0"), "output": rates},
    optional={"batch_permille": st.integers(1, 1_000)},
)
words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
bodies = st.fixed_dictionaries(
    {
        "messages": st.lists(
            st.fixed_dictionaries(
                {
                    "role": st.sampled_from(["system", "user"]),
                    "content": words.map(lambda text: text.replace("{{", "")).filter(bool),
                }
            ),
            min_size=1,
            max_size=3,
        )
    }
)
projects = st.fixed_dictionaries(
    {"name": st.sampled_from(["web", "night"])},
    optional={
        "safety": st.sampled_from(["off", "flag", "block"]),
        "content": st.booleans(),
        "policies": st.sampled_from(
            [
                {},
                {"require_max_tokens": True, "calls_max": 3},
                {"personal": {"email": "mask"}, "patterns": [{"name": "a", "pattern": "b+"}]},
            ]
        ),
        "keeps_days": st.integers(0, 365),
        "weight": st.integers(1, 100),
        "limits": limits,
        "user_limits": limits,
        "model_limits": of_models(limits),
        "budget": budgets,
        "user_budget": user_budgets,
        "model_budgets": of_models(budgets),
        "prices": of_models(prices),
    },
)
templates = st.fixed_dictionaries({"name": st.sampled_from(["one", "two"]), "body": bodies})
models = st.fixed_dictionaries(
    {"name": st.just("small")},
    optional={
        "enabled": st.booleans(),
        "context_window": st.integers(2048, 8192),
        "output_tokens_max": st.integers(64, 2048),
        "owner": st.just("us"),
        "price": prices,
    },
)
rules = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["a", "b", "c"]),
            "match": st.just({"tasks": ["generate"]}),
            "steps": st.just([{"targets": [{"model": "other"}], "queue_s": 1.5}]),
        },
        optional={"priority": st.integers(0, 2), "deadline_s": st.integers(1, 100)},
    ),
    max_size=2,
    unique_by=lambda rule: str(rule["name"]),
)


def once(strategy: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(strategy, max_size=2, unique_by=lambda one: str(one["name"]))


documents = st.fixed_dictionaries(
    {
        "sluice": st.just(1),
        "models": once(models),
        "organizations": st.lists(
            st.fixed_dictionaries(
                {"name": st.just("Acme"), "projects": once(projects), "templates": once(templates)},
                optional={
                    "limits": limits,
                    "user_limits": limits,
                    "model_limits": of_models(limits),
                    "budget": budgets,
                },
            ),
            max_size=1,
        ),
    },
    optional={"routing": st.fixed_dictionaries({"rules": rules})},
)


@pytest.fixture
def cast(database: str) -> None:
    """People, and two models."""
    make_models("small", "other")
    make_cast()


@hypothesis_settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(document=documents)
def test_an_export_applied_changes_nothing(cast: None, document: dict[str, Any]) -> None:
    configuration_apply(actor=OPERATOR, text=write_yaml(document), dry_run=False)
    exported = configuration_export(actor=OPERATOR)
    assert configuration_apply(actor=OPERATOR, text=exported, dry_run=False) == []
    assert configuration_apply(actor=OPERATOR, text=write_yaml(document)) == []
    assert configuration_export(actor=OPERATOR) == exported


def config(*arguments: str) -> str:
    out = io.StringIO()
    call_command("sluice", "config", *arguments, stdout=out)
    return out.getvalue()


def test_there_is_a_ready_document_for_each_purpose() -> None:
    assert ready_names() == sorted(NAMES)
    assert config("ready").split() == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_ready_document_can_be_applied_to_a_fresh_installation(
    database: str, tmp_path: Path, name: str
) -> None:
    demo_ensure(new_node_credential=False, embed=False, new_embed_credential=False)
    file = tmp_path / f"{name}.yaml"
    file.write_text(config("ready", name))
    assert "can be applied" in config("validate", str(file))
    before = config("export")
    planned = config("diff", str(file))
    assert config("apply", str(file)) == planned and "nothing was applied" in planned
    assert config("export") == before
    done = config("apply", str(file), "--yes")
    assert done.splitlines()[:-1] == planned.splitlines()[:-1] != []
    assert config("apply", str(file), "--yes") == "0 values changed.\n"


def test_a_slip_is_told_with_its_path_and_line(database: str, tmp_path: Path) -> None:
    file = tmp_path / "slip.yaml"
    file.write_text("sluice: 1\npools:\n  - name: default\n    size: 3\n")
    with pytest.raises(CommandError, match=r"pools\[0\]\.size: Unknown field. \(line 4\)"):
        config("validate", str(file))
    with pytest.raises(CommandError, match="cannot be read"):
        config("validate", str(tmp_path / "none.yaml"))


def test_documentation_names_every_ready_document() -> None:
    told = (Path(settings.BASE_DIR) / "docs" / "configuration.md").read_text()
    assert all(f"`{name}`" in told for name in NAMES)
