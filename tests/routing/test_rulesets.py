"""Rules as versions: published whole, never changed, checked by name."""

import psycopg
import pytest
from django.core.exceptions import PermissionDenied, ValidationError

from controlplane.catalog.services import ModelDraft, model_create
from controlplane.core.audit import OPERATOR
from controlplane.routing.selectors import rule_list, ruleset_in_force
from controlplane.routing.services import RuleDraft, ruleset_publish
from tests.support.money import rows
from tests.support.people import make_cast

pytestmark = pytest.mark.usefixtures("database")


def make_model() -> None:
    draft = ModelDraft(
        name="m-1",
        pool="default",
        context_window=10,
        output_tokens_default=5,
        output_tokens_max=5,
    )
    model_create(actor=OPERATOR, draft=draft)


def test_the_newest_version_is_in_force_in_its_order() -> None:
    make_model()
    assert ruleset_in_force() is None
    rules = [RuleDraft(name=f"r{n}", alias=f"a{n}", model="m-1", pool="default") for n in range(3)]
    ruleset_publish(actor=OPERATOR, rules=rules)
    ruleset_publish(actor=OPERATOR, rules=rules[::-1], note="turned round")
    current = ruleset_in_force()
    assert current is not None and current.version == 2
    assert [rule.name for rule in rule_list(rule_set=current)] == ["r2", "r1", "r0"]


def test_a_rule_must_lead_somewhere() -> None:
    make_model()
    rules = [
        RuleDraft(name="good", model="m-1", pool="default"),
        RuleDraft(name="bad", model="m-2", pool="default"),
    ]
    with pytest.raises(ValidationError) as caught:
        ruleset_publish(actor=OPERATOR, rules=rules)
    assert list(caught.value.message_dict) == ["rules[1].model"]
    assert ruleset_in_force() is None


def test_only_staff_publish_and_nothing_published_changes() -> None:
    make_model()
    cast = make_cast()
    with pytest.raises(PermissionDenied):
        ruleset_publish(actor=cast.alice, rules=[])
    ruleset_publish(actor=cast.stella, rules=[])
    with pytest.raises(psycopg.errors.RestrictViolation):
        rows("UPDATE rule_sets SET version = 9")
