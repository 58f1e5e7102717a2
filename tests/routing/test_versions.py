"""The life of a version: draft, trial, publication, return; each step allowed, refused, audited."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import connections

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.errors.body import Conflict
from controlplane.core.versions.models import State
from controlplane.routing.api import summary_json
from controlplane.routing.models import RuleSet
from controlplane.routing.selectors import (
    rules_of,
    ruleset_get,
    ruleset_in_force,
    ruleset_list,
    ruleset_on_trial,
)
from controlplane.routing.services import RuleVersions
from tests.support.money import rows
from tests.support.people import make_cast
from tests.support.rules import generates, make_models, publish

TO_SMALL = generates("everything", "small")
TO_LARGE = generates("everything", "large")
MISSING = generates("everything", "none-such")


@pytest.fixture(autouse=True)
def models(database: str) -> None:
    """Two generators and an embedder."""
    make_models("small", "large")


def draft(*rules: dict[str, object]) -> RuleSet:
    return RuleVersions(OPERATOR).draft_create(list(rules))


def states() -> dict[int, str]:
    return {one.version: one.state for one in ruleset_list(actor=OPERATOR)}


def audited() -> list[tuple[str, int]]:
    found = rows(
        "SELECT action, detail FROM audit_entries WHERE subject_type = 'RuleSet' ORDER BY id"
    )
    return [(action, detail["version"]) for action, detail in found]


def config_version() -> int:
    ((version,),) = rows("SELECT version FROM config_version")
    return int(version)


def test_publishing_replaces_all_rules_in_their_order() -> None:
    assert ruleset_in_force() is None
    publish(generates("a", "small", aliases=["x"]), TO_LARGE)
    publish(TO_SMALL, note="all to small")
    current = ruleset_in_force()
    assert current is not None
    assert (current.version, current.note) == (2, "all to small")
    assert [rule.label for rule in rules_of(current)] == ["everything@2"]
    assert states() == {2: "published", 1: "retired"}
    assert [action for action, _ in audited()] == ["ruleset.draft_create", "ruleset.publish"] * 2


def test_gateways_are_told_of_what_they_follow_and_of_nothing_else() -> None:
    before = config_version()
    made = draft(TO_SMALL)
    made = RuleVersions(OPERATOR).draft_update(made, [TO_LARGE], "")
    assert config_version() == before
    steps: list[Callable[[], RuleSet]] = [
        lambda: RuleVersions(OPERATOR).canary_start(made, share_permille=10),
        lambda: RuleVersions(OPERATOR).canary_start(made, share_permille=20),
        lambda: RuleVersions(OPERATOR).canary_promote(made),
        lambda: publish(TO_SMALL),
        lambda: RuleVersions(OPERATOR).rollback(),
    ]
    for number, step in enumerate(steps, start=1):
        step()
        assert config_version() == before + number


def test_a_draft_may_be_wrong_but_not_be_published_then() -> None:
    made = draft(MISSING)
    with pytest.raises(ValidationError) as caught:
        RuleVersions(OPERATOR).publish(made)
    assert list(caught.value.message_dict) == ["rules[0].steps[0].targets[0].model"]
    with pytest.raises(ValidationError):
        RuleVersions(OPERATOR).canary_start(made, share_permille=10)
    assert ruleset_in_force() is None
    assert states() == {1: "draft"}


def test_of_two_editors_the_second_is_told() -> None:
    made = draft(TO_SMALL)
    first, second = (ruleset_get(actor=OPERATOR, version=made.version) for _ in range(2))
    RuleVersions(OPERATOR).draft_update(first, [TO_LARGE], "first")
    with pytest.raises(Conflict) as caught:
        RuleVersions(OPERATOR).draft_update(second, [], "second")
    assert "revision" in caught.value.message_dict
    with pytest.raises(Conflict):
        RuleVersions(OPERATOR).publish(second)
    assert ruleset_get(actor=OPERATOR, version=1).note == "first"


def test_a_draft_of_an_older_version_is_compared_first() -> None:
    made = draft(TO_SMALL)
    publish(TO_LARGE)
    with pytest.raises(Conflict) as caught:
        RuleVersions(OPERATOR).publish(made)
    assert list(caught.value.message_dict) == ["based_on"]
    with pytest.raises(Conflict) as caught:
        RuleVersions(OPERATOR).draft_update(made, [TO_SMALL], "", rebase=1)
    assert list(caught.value.message_dict) == ["rebase"]
    made = RuleVersions(OPERATOR).draft_update(made, [TO_SMALL], "", rebase=2)
    assert RuleVersions(OPERATOR).publish(made).state == State.PUBLISHED
    assert states() == {2: "retired", 1: "published"}


def test_of_two_drafts_published_at_once_one_is_in_force() -> None:
    made = [draft(TO_SMALL), draft(TO_LARGE)]
    refused: list[Conflict] = []

    def go(rule_set: RuleSet) -> None:
        try:
            RuleVersions(OPERATOR).publish(rule_set)
        except Conflict as conflict:
            refused.append(conflict)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=go, args=(one,)) for one in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(states().values()) == ["draft", "published"]
    assert len(refused) == 1


def test_a_canary_is_promoted() -> None:
    publish(TO_SMALL)
    made = draft(TO_LARGE)
    RuleVersions(OPERATOR).canary_start(made, share_permille=50, stops_itself=True)
    canary = ruleset_on_trial()
    assert canary is not None and (canary.share_permille, canary.stops_itself) == (50, True)
    with pytest.raises(Conflict, match="in canary"):
        publish(TO_SMALL)
    RuleVersions(OPERATOR).canary_promote(made)
    assert states() == {3: "draft", 2: "published", 1: "retired"}
    assert ruleset_on_trial() is None


def test_a_canary_is_stopped_and_its_rules_stay_what_requests_were_labelled_by() -> None:
    publish(TO_SMALL)
    made = draft(TO_LARGE)
    RuleVersions(OPERATOR).canary_start(made, share_permille=50)
    RuleVersions(OPERATOR).canary_stop(made, reason="slow")
    assert states() == {2: "retired", 1: "published"}
    with pytest.raises(Conflict):
        RuleVersions(OPERATOR).draft_update(made, [], "")
    assert audited()[-1] == ("ruleset.canary_stop", 2)


@pytest.mark.parametrize("share", [0, 1_000, -1])
def test_a_share_has_bounds(share: int) -> None:
    with pytest.raises(ValidationError) as caught:
        RuleVersions(OPERATOR).canary_start(draft(TO_SMALL), share_permille=share)
    assert list(caught.value.message_dict) == ["share_permille"]


def test_one_step_back_and_another_until_there_is_none() -> None:
    for target in ("small", "large", "small"):
        publish(generates(f"to-{target}", target))
    fourth = RuleVersions(OPERATOR).rollback()
    assert fourth.copy_of is not None
    assert (fourth.version, fourth.copy_of.version, fourth.state) == (4, 2, "published")
    assert [rule.label for rule in rules_of(fourth)] == ["to-large@4"]
    fifth = RuleVersions(OPERATOR).rollback()
    assert fifth.copy_of is not None and fifth.copy_of.version == 1
    # Before the first version there were no rules, and from there the way leads back again.
    sixth = RuleVersions(OPERATOR).rollback()
    assert (sixth.copy_of, rules_of(sixth)) == (None, ())
    with pytest.raises(Conflict):
        RuleVersions(OPERATOR).rollback(to_nothing=True)
    assert states() == {6: "published", **dict.fromkeys((5, 4, 3, 2, 1), "retired")}
    assert audited()[-1] == ("ruleset.rollback", 6)
    seventh = RuleVersions(OPERATOR).rollback()
    assert seventh.copy_of is not None and seventh.copy_of.version == 1


def test_back_to_a_chosen_version_ends_a_canary_too() -> None:
    first = publish(TO_SMALL)
    publish(TO_LARGE)
    publish(TO_LARGE)
    RuleVersions(OPERATOR).canary_start(draft(TO_LARGE), share_permille=10)
    made = RuleVersions(OPERATOR).rollback(to=ruleset_get(actor=OPERATOR, version=first.version))
    assert made.copy_of is not None and made.copy_of.version == 1
    assert ruleset_on_trial() is None
    never = draft(TO_SMALL)
    with pytest.raises(Conflict):
        RuleVersions(OPERATOR).rollback(to=never)


def test_a_draft_given_up_stays_readable() -> None:
    made = RuleVersions(OPERATOR).draft_discard(draft(TO_SMALL))
    assert made.state == State.RETIRED
    with pytest.raises(Conflict):
        RuleVersions(OPERATOR).publish(made)
    assert rules_of(ruleset_get(actor=OPERATOR, version=1))[0].name == "everything"


def test_only_staff_may() -> None:
    cast = make_cast()
    made = draft(TO_SMALL)
    calls: list[Callable[[], object]] = [
        lambda: RuleVersions(cast.alice).draft_create([]),
        lambda: RuleVersions(cast.alice).draft_update(made, [], ""),
        lambda: RuleVersions(cast.alice).draft_discard(made),
        lambda: RuleVersions(cast.alice).publish(made),
        lambda: RuleVersions(cast.alice).canary_start(made, share_permille=1),
        lambda: RuleVersions(cast.alice).canary_promote(made),
        lambda: RuleVersions(cast.alice).canary_stop(made),
        lambda: RuleVersions(cast.alice).rollback(),
        lambda: ruleset_list(actor=cast.alice),
        lambda: ruleset_get(actor=cast.alice, version=1),
    ]
    for call in calls:
        with pytest.raises(PermissionDenied):
            call()
    assert RuleVersions(cast.stella).publish(made).state == State.PUBLISHED


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE rule_sets SET rules = '[]' WHERE version = 2",
        "UPDATE rule_sets SET note = 'x' WHERE version = 1",
        "UPDATE rule_sets SET version = 9 WHERE version = 3",
        "UPDATE rule_sets SET state = 'published' WHERE version = 1",
        "UPDATE rule_sets SET state = 'draft' WHERE version = 2",
        "DELETE FROM rule_sets WHERE version = 3",
    ],
)
def test_the_database_keeps_history(change: str) -> None:
    publish(TO_SMALL)
    publish(TO_LARGE)
    draft(TO_SMALL)
    with pytest.raises(psycopg.errors.RestrictViolation):
        rows(change)


def test_the_database_allows_one_in_force_and_one_on_trial() -> None:
    publish(TO_SMALL)
    draft(TO_SMALL)
    draft(TO_SMALL)
    with pytest.raises(psycopg.errors.UniqueViolation):
        rows("UPDATE rule_sets SET state = 'published' WHERE version = 2")
    with pytest.raises(psycopg.errors.UniqueViolation):
        rows("UPDATE rule_sets SET state = 'canary' WHERE version > 1")


def test_the_list_of_versions_reads_no_rules() -> None:
    publish(TO_SMALL, generates("more", "large"))
    publish(TO_LARGE)
    RuleVersions(OPERATOR).rollback()
    found = ruleset_list(actor=OPERATOR)
    assert [vars(each)["rules_count"] for each in found] == [2, 1, 2]
    origins = [each for one in found for each in (one.based_on, one.copy_of) if each is not None]
    assert origins
    assert all("rules" in each.get_deferred_fields() for each in [*found, *origins])
    assert [summary_json(each)["version"] for each in found] == [3, 2, 1]
