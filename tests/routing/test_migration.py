"""Rules that had rows of their own are carried into their version by the migration's SQL."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from django.conf import settings

from controlplane.routing.rulesjson import read_rules
from tests.support.money import superuser_dsn

MOVE = "controlplane/routing/sql/versions_move.sql"
BEFORE = """
    CREATE TEMP TABLE rule_sets (id int, version int, created_at timestamptz DEFAULT now(),
        state text DEFAULT 'draft', published_at timestamptz, rules jsonb DEFAULT '[]');
    CREATE TEMP TABLE route_rules (rule_set_id int, position int, name text, alias text,
        project_id uuid, model text, pool text);
    INSERT INTO rule_sets (id, version) VALUES (1, 1), (2, 2), (3, 3);
    INSERT INTO route_rules VALUES
        (2, 1, 'second', NULL, NULL, 'm', 'p'),
        (2, 0, 'first', 'chat', '00000000-0000-0000-0000-00000000000a', 'm', 'p'),
        (3, 0, 'only', 'chat', NULL, 'm', 'p');
"""


@pytest.mark.usefixtures("database")
def test_rows_become_json_and_the_newest_stays_in_force() -> None:
    with psycopg.connect(superuser_dsn(), autocommit=True) as connection:
        connection.execute(BEFORE.encode())
        connection.execute(Path(settings.BASE_DIR, MOVE).read_bytes())
        found = connection.execute(
            "SELECT version, state, published_at = created_at, rules FROM rule_sets"
            " ORDER BY version"
        ).fetchall()
    assert [row[:3] for row in found] == [
        (1, "retired", True),
        (2, "retired", True),
        (3, "published", True),
    ]
    assert found[0][3] == []
    first, second = read_rules(found[1][3])
    assert (first.name, first.match.aliases) == ("first", frozenset({"chat"}))
    assert first.match.projects == frozenset({"0" * 31 + "a"})
    assert (second.name, second.match.projects) == ("second", frozenset())
    assert (second.steps[0].targets[0].model, second.steps[0].targets[0].pool) == ("m", "p")
