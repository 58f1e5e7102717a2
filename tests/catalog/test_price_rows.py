"""Prices of one project: seen by its organization alone, and numbered with all the others."""

from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied
from django.db import Error, connection
from django.utils import timezone

from controlplane.catalog.models import Model, PriceVersion
from controlplane.catalog.selectors import model_find, price_find, price_list, price_list_all
from controlplane.catalog.services import PriceDraft, price_override_end, price_publish
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import organization_scope
from tests.support.people import Cast, make_cast
from tests.support.rules import make_models

HALF = PriceDraft(input_pico=75_000, cached_pico=0, output_pico=300_000)


@pytest.fixture
def cast(database: str) -> Cast:
    make_models("tiny")
    return make_cast()


@pytest.fixture
def model(cast: Cast) -> Model:
    found = model_find(name="tiny")
    assert found is not None
    return found


def versions(rows: list[PriceVersion]) -> list[int]:
    return [row.version for row in rows]


def test_another_organization_sees_no_price_that_was_agreed(cast: Cast, model: Model) -> None:
    price_publish(actor=OPERATOR, model=model, draft=HALF, project=cast.project)
    assert versions(price_list(model=model)) == [1]
    with organization_scope([cast.other.id]):
        assert versions(price_list(model=model)) == [1]
        assert not PriceVersion.objects.filter(project=cast.project).exists()
    with organization_scope([cast.acme.id]):
        assert versions(price_list(model=model)) == [2, 1]
    assert price_find(model="tiny", version=2, organization_id=cast.other.id) is None
    own = price_find(model="tiny", version=2, organization_id=cast.acme.id)
    assert own is not None and own.input_pico == HALF.input_pico
    assert versions(price_list_all(actor=cast.stella, model=model)) == [2, 1]
    with pytest.raises(PermissionDenied):
        price_list_all(actor=cast.alice, model=model)


def test_another_organizations_scope_publishes_none(cast: Cast, model: Model) -> None:
    draft = vars(HALF) | {"model": model, "project": cast.project, "effective_from": timezone.now()}
    with (
        pytest.raises(Error, match="row-level security"),
        organization_scope([cast.other.id]),
    ):
        PriceVersion.objects.create(version=2, **draft)
    for statement in ("UPDATE price_versions SET input_pico = 0", "DELETE FROM price_versions"):
        with pytest.raises(Error, match="permission denied"), connection.cursor() as cursor:
            cursor.execute(statement)


def test_numbers_count_versions_that_nobody_here_sees(cast: Cast, model: Model) -> None:
    def publish(**more: object) -> int:
        return price_publish(actor=OPERATOR, model=model, draft=HALF, **more).version  # type: ignore[arg-type]

    assert publish(project=cast.project) == 2
    assert publish() == 3
    assert publish(project=cast.other_project) == 4
    with organization_scope([cast.other.id]):
        assert publish() == 5
    assert price_override_end(actor=OPERATOR, model=model, project=cast.project).version == 6
    assert versions(price_list_all(actor=OPERATOR, model=model)) == [6, 5, 4, 3, 2, 1]
