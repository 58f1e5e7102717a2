"""What separates cached prefixes: tenants always, projects and times where that is asked."""

from __future__ import annotations

import msgspec

from tests.support.ports import PROJECT, make_snapshot

NOW_S = 1_800_000_000.0
MINUTES = 10
SPAN_S = 60 * MINUTES


def test_projects_share_the_salt_of_their_organization_unless_they_ask() -> None:
    one = make_snapshot("tiny").projects[PROJECT]
    one = msgspec.structs.replace(one, salt=b"s" * 32)
    other = msgspec.structs.replace(one, id="d" * 32)
    assert one.cache_salt(NOW_S) == other.cache_salt(NOW_S) == one.salt
    alone = [msgspec.structs.replace(each, cache_shared=False) for each in (one, other)]
    salts = {each.cache_salt(NOW_S) for each in alone} | {one.salt}
    assert len(salts) == 3
    assert alone[0].cache_salt(NOW_S) == alone[0].cache_salt(NOW_S + 10 * SPAN_S)


def test_a_prefix_is_found_no_longer_than_the_time_of_its_project() -> None:
    project = make_snapshot("tiny").projects[PROJECT]
    project = msgspec.structs.replace(project, salt=b"s" * 32, cache_minutes=MINUTES)
    at_s = NOW_S // SPAN_S * SPAN_S
    first = project.cache_salt(at_s)
    assert project.cache_salt(at_s + SPAN_S - 1) == first
    later = {project.cache_salt(at_s + times * SPAN_S) for times in range(1, 50)}
    assert len(later) == 49
    assert first not in later
    # Tenants stay apart.
    assert msgspec.structs.replace(project, salt=b"t" * 32).cache_salt(at_s) != first


def test_an_adapter_shares_no_prefix_with_the_model_that_it_changes() -> None:
    project = make_snapshot("tiny").projects[PROJECT]
    times = [msgspec.structs.replace(project, cache_minutes=each) for each in (0, MINUTES)]
    salts = {each.cache_salt(NOW_S, name) for each in times for name in ("", "poet", "cook")}
    assert len(salts) == 6
