"""Limits of keys and projects: set, lifted, bounded, and seen by members only."""

import pytest
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError

from controlplane.quotas.selectors import rate_limit_map
from controlplane.quotas.services import rate_limit_set
from controlplane.tenants.keys import apikey_create
from tests.support.people import make_cast

pytestmark = pytest.mark.usefixtures("database")


def test_limits_are_set_changed_and_lifted() -> None:
    cast = make_cast()
    key = apikey_create(actor=cast.alice, project=cast.project, label="k").key
    rate_limit_set(actor=cast.alice, subject=key, requests_per_min=60, tokens_per_min=None)
    rate_limit_set(actor=cast.alice, subject=key, requests_per_min=30, tokens_per_min=1000)
    rate_limit_set(actor=cast.alice, subject=cast.project, requests_per_min=None, tokens_per_min=9)
    seen = rate_limit_map(user=cast.bob)
    assert (seen[key.id].requests_per_min, seen[key.id].tokens_per_min) == (30, 1000)
    assert seen[cast.project.id].scope == "project"
    assert rate_limit_map(user=cast.charlie) == {}
    rate_limit_set(actor=cast.alice, subject=key, requests_per_min=None, tokens_per_min=None)
    assert set(rate_limit_map(user=cast.bob)) == {cast.project.id}


@pytest.mark.parametrize("value", [0, -1, 10**9 + 1])
@pytest.mark.parametrize("field", ["requests_per_min", "tokens_per_min"])
def test_values_out_of_bounds_name_their_field(field: str, value: int) -> None:
    cast = make_cast()
    limits: dict[str, int | None] = {"requests_per_min": None, "tokens_per_min": None}
    with pytest.raises(ValidationError) as caught:
        rate_limit_set(actor=cast.alice, subject=cast.project, **(limits | {field: value}))
    assert list(caught.value.message_dict) == [field]


def test_developers_and_strangers_set_none() -> None:
    cast = make_cast()
    for actor, error in ((cast.bob, PermissionDenied), (cast.charlie, ObjectDoesNotExist)):
        with pytest.raises(error):
            rate_limit_set(
                actor=actor, subject=cast.project, requests_per_min=1, tokens_per_min=None
            )
