"""Budgets of stages that an installation learns from its own first requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.spans import STAGES
from controlplane.slos.checks import StageBody
from controlplane.slos.learning import REQUESTS_MIN, learned_us, stage_budgets_learn
from controlplane.slos.models import StageOwner
from controlplane.slos.selectors import stage_owners
from controlplane.slos.services import stage_owner_set
from tests.support.money import rows
from tests.support.records import make_record
from tests.support.traffic import store

PUBLIC = {name: budget_us for name, _, budget_us in STAGES}


def test_a_budget_has_headroom_in_two_digits_and_is_never_below_the_public_one() -> None:
    assert learned_us(38_400.0, 1_000) == 58_000
    assert learned_us(1_001.0, 1_000) == 1_600
    assert learned_us(0.0, 5_000) == 5_000
    assert learned_us(3.0, 1) == 5


@pytest.mark.usefixtures("database")
def test_budgets_are_learned_once_and_never_over_those_that_somebody_set() -> None:
    now = datetime.now(UTC)
    assert not any(owner.judges for owner in stage_owners().values())
    store([make_record() for _ in range(REQUESTS_MIN - 1)])
    assert stage_budgets_learn(now) == 0
    stage_owner_set(actor=OPERATOR, stage="s7_bill", owner=StageBody("money", 7, "s7-bill"))
    store([make_record()])
    assert stage_budgets_learn(now + timedelta(minutes=1)) == len(STAGES) - 1
    found = stage_owners()
    assert found.pop("s7_bill").budget_us == 7
    for name, owner in found.items():
        assert owner.judges and owner.learned_from == REQUESTS_MIN
        assert owner.budget_us >= PUBLIC[name]
    assert stage_budgets_learn(now + timedelta(minutes=1)) == 0
    audited = rows("SELECT detail FROM audit_entries WHERE action = 'stage_owner.learn'")
    assert len(audited) == len(STAGES) - 1
    # What was learned is replaced by what somebody sets.
    stage_owner_set(actor=OPERATOR, stage="s5_infer", owner=StageBody("gpus", 9, "s5-infer"))
    assert StageOwner.objects.get(stage="s5_infer").learned_from == 0
