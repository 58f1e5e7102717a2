"""Models and prices: bounds, and versions that never change."""

import json
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.utils import timezone

from controlplane.catalog.models import Model
from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.catalog.selectors import model_list, price_in_force, price_list
from controlplane.catalog.services import (
    ModelDraft,
    PriceDraft,
    model_create,
    model_enable,
    price_override_end,
    price_publish,
)
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.price import RATE_PICO_MAX
from tests.support.money import rows
from tests.support.people import make_cast

pytestmark = pytest.mark.usefixtures("database")
CHEAP = PriceDraft(input_pico=150_000, cached_pico=30_000, output_pico=600_000)


def draft(**changes: object) -> ModelDraft:
    fields: dict[str, object] = {
        "name": "m-1",
        "pool": "default",
        "context_window": 4096,
        "output_tokens_default": 256,
        "output_tokens_max": 1024,
    }
    return ModelDraft(**(fields | changes))  # type: ignore[arg-type]


def make_model() -> Model:
    return model_create(actor=OPERATOR, draft=draft())


def test_prices_take_over_by_version_and_time() -> None:
    model, now = make_model(), timezone.now()
    assert price_in_force(model=model, at=now) is None
    first = price_publish(actor=OPERATOR, model=model, draft=CHEAP)
    later = now + timedelta(hours=1)
    dear = PriceDraft(input_pico=300_000, cached_pico=30_000, output_pico=900_000)
    second = price_publish(actor=OPERATOR, model=model, draft=dear, effective_from=later)
    assert [row.version for row in price_list(model=model)] == [2, 1]
    assert (first.version, second.version) == (1, 2)
    in_force = price_in_force(model=model, at=timezone.now())
    afterwards = price_in_force(model=model, at=later)
    assert in_force is not None and in_force.version == 1
    assert afterwards is not None and afterwards.output_pico == 900_000


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE price_versions SET input_pico = 0",
        "DELETE FROM price_versions",
        "TRUNCATE price_versions",
    ],
)
def test_a_published_price_never_changes(statement: str) -> None:
    price_publish(actor=OPERATOR, model=make_model(), draft=CHEAP)
    with pytest.raises(psycopg.errors.RestrictViolation):
        rows(statement)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": "no space"}, "name"),
        ({"pool": "Über"}, "pool"),
        ({"pool": "gold"}, "pool"),
        ({"task": "embed", "output_tokens_default": 0, "output_tokens_max": 0}, "pool"),
        ({"task": "guess"}, "task"),
        ({"context_window": 0}, "__all__"),
        ({"output_tokens_default": 2000}, "__all__"),
        ({"output_tokens_max": 5000}, "__all__"),
    ],
)
def test_bad_models_name_their_field(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        model_create(actor=OPERATOR, draft=draft(**wrong))
    assert field in caught.value.message_dict


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (PriceDraft(input_pico=-1, cached_pico=0, output_pico=0), "input_pico"),
        (PriceDraft(input_pico=0, cached_pico=0, output_pico=RATE_PICO_MAX + 1), "output_pico"),
        (
            PriceDraft(input_pico=0, cached_pico=0, output_pico=10**9, priority_permille=100_001),
            "priority_permille",
        ),
        (
            PriceDraft(input_pico=10**9 + 1, cached_pico=0, output_pico=0, batch_permille=100_000),
            "batch_permille",
        ),
        (PriceDraft(input_pico=1, cached_pico=2, output_pico=0), "cached_pico"),
    ],
)
def test_bad_prices_name_their_field(wrong: PriceDraft, field: str) -> None:
    model = make_model()
    with pytest.raises(ValidationError) as caught:
        price_publish(actor=OPERATOR, model=model, draft=wrong)
    assert list(caught.value.message_dict) == [field]


def test_no_price_in_the_past_and_no_name_twice() -> None:
    model = make_model()
    with pytest.raises(ValidationError):
        price_publish(
            actor=OPERATOR,
            model=model,
            draft=CHEAP,
            effective_from=timezone.now() - timedelta(days=1),
        )
    with pytest.raises(ValidationError):
        make_model()


def test_only_staff_manage_the_catalog() -> None:
    cast, model = make_cast(), make_model()
    with pytest.raises(PermissionDenied):
        price_publish(actor=cast.alice, model=model, draft=CHEAP)
    model_enable(actor=cast.stella, model=model, enabled=False)
    assert model_list() == [model]
    assert model_list(enabled_only=True) == []


def _told(model: Model) -> dict[str, Any]:
    """What gateways read of a model."""
    ((text,),) = rows("SELECT config_parts(0, 0)")
    found: dict[str, Any] = json.loads(text)["models"][model.name]
    return found


def test_a_project_pays_what_was_agreed_with_it_until_that_ends() -> None:
    model, cast = make_model(), make_cast()
    price_publish(actor=OPERATOR, model=model, draft=CHEAP)
    assert _told(model)["overrides"] == {}
    half = PriceDraft(input_pico=75_000, cached_pico=0, output_pico=300_000, batch_permille=500)
    version = rows("SELECT version FROM config_now()")[0][0]
    price_publish(actor=OPERATOR, model=model, draft=half, project=cast.project)
    assert rows("SELECT version FROM config_now()")[0][0] > version
    told = _told(model)
    assert told["overrides"] == {
        cast.project.id.hex: {
            "price": {
                "version": 2,
                "input_pico": 75_000,
                "cached_pico": 0,
                "output_pico": 300_000,
            },
            "batch_permille": 500,
            "priority_permille": 1_000,
        }
    }
    assert told["price"]["version"] == 1
    in_force = price_in_force(model=model, at=timezone.now())
    assert in_force is not None and in_force.version == 1
    price_override_end(actor=OPERATOR, model=model, project=cast.project)
    assert _told(model)["overrides"] == {}
    with pytest.raises(ValidationError, match="already pays the list price"):
        price_override_end(actor=OPERATOR, model=model, project=cast.project)


def test_ending_what_was_agreed_ends_what_is_in_force_and_what_was_to_come() -> None:
    model, cast = make_model(), make_cast()
    price_publish(actor=OPERATOR, model=model, draft=CHEAP)
    price_publish(actor=OPERATOR, model=model, draft=CHEAP, project=cast.project)
    for hours in (1, 2):
        later = timezone.now() + timedelta(hours=hours)
        price_publish(
            actor=OPERATOR, model=model, draft=CHEAP, effective_from=later, project=cast.project
        )
    assert set(_told(model)["overrides"]) == {cast.project.id.hex}
    price_override_end(actor=OPERATOR, model=model, project=cast.project)
    assert _told(model)["overrides"] == {}
    rows("ALTER TABLE price_versions DISABLE TRIGGER USER")
    for _ in range(2):
        rows(
            "UPDATE price_versions SET effective_from = effective_from - interval '1 hour',"
            " effective_until = effective_until - interval '1 hour'"
        )
        assert _told(model)["overrides"] == {}
    rows("ALTER TABLE price_versions ENABLE TRIGGER USER")
    with pytest.raises(ValidationError, match="already pays the list price"):
        price_override_end(actor=OPERATOR, model=model, project=cast.project)


def test_a_price_that_begins_later_is_not_told_before() -> None:
    model, cast = make_model(), make_cast()
    price_publish(actor=OPERATOR, model=model, draft=CHEAP)
    later = timezone.now() + timedelta(hours=1)
    price_publish(
        actor=OPERATOR, model=model, draft=CHEAP, effective_from=later, project=cast.project
    )
    assert _told(model)["overrides"] == {}
    rows("ALTER TABLE price_versions DISABLE TRIGGER USER")
    rows("UPDATE price_versions SET effective_from = now() - interval '1 s' WHERE version = 2")
    rows("ALTER TABLE price_versions ENABLE TRIGGER USER")
    assert set(_told(model)["overrides"]) == {cast.project.id.hex}


@pytest.mark.parametrize(
    ("field", "draft_of"),
    [
        ("batch_permille", {"batch_permille": 100_001}),
        ("priority_permille", {"priority_permille": -1}),
        ("output_pico", {}),
    ],
)
def test_prices_out_of_bounds_name_their_field(field: str, draft_of: dict[str, int]) -> None:
    embeds = draft(task="embed", output_tokens_default=0, output_tokens_max=0, pool="embeds")
    pool_set(actor=OPERATOR, draft=PoolDraft(name="embeds", task="embed"))
    model = model_create(actor=OPERATOR, draft=embeds)
    rates = {"input_pico": 5, "cached_pico": 5, "output_pico": 0 if draft_of else 1}
    with pytest.raises(ValidationError) as raised:
        price_publish(actor=OPERATOR, model=model, draft=PriceDraft(**rates, **draft_of))
    assert list(raised.value.message_dict) == [field]
