"""Many of everything: requests by the million, a year of audit, nodes and keys by the thousand.

Rows are made in the database by its own series, as their writers would have left them, without
their triggers; the tables are vacuumed afterwards, as they would have been meanwhile.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from django.conf import settings

from benchmarks.telemetry.past import DAYS, MODELS, POOLS, REGIONS
from controlplane.kernel.receipt import NONE, write_receipt
from controlplane.kernel.spans import SPANS, pack_spans
from controlplane.telemetry import services
from tests.support.money import superuser_dsn

NODES, KEYS = 1_000, 10_000
# Measured: a request with its two indexes, and as much again for the log that it is written to.
REQUEST_BYTES, DISK_SHARE = 520, 0.5
# A UUIDv7 of the millisecond {at} and the number n of a row.
ID = (
    "(lpad(to_hex({at}), 12, '0') || '7' || lpad(to_hex(n %% 4096), 3, '0') || '8'"
    " || lpad(to_hex(n), 15, '0'))::uuid"
)
FACTS: dict[str, Any] = {
    "pool": "default", "dtype": "bfloat16", "device": "cpu", "engine": "compact",
    "models": ["sluice-5m"], "offers": [{"model": "sluice-5m", "digest": "0" * 64}],
    "region": "local", "credits": 64, "release": "0.9.0", "kv_blocks": 2_730, "block_size": 32,
    "capabilities": ["cancel", "deadline", "grammar", "prefix_cache", "stream", "tokens", "top_k"],
    "cold_start_ms": 6_705, "separates_tenants": True, "path": {
        "slow": "", "kernels": "native", "decode_tokens_s": 428.3, "prefill_tokens_s": 3_440.2,
    },
}  # fmt: skip
LINK: dict[str, Any] = {
    "active": 3, "breaker": "closed", "credits": 61, "running": 3, "step_us": 928, "waiting": 0,
    "kv_blocks": 2_730, "takes_jobs": True, "cpu_permille": 700, "decode_share": 0.1,
    "breaker_cause": "", "prefill_share": 1.09, "queued_tokens": 0, "kv_free_blocks": 1_900,
}  # fmt: skip


def requests_that_fit(wanted: int) -> int:
    """As many rows as are wanted, or as half of the free disk takes."""
    free = shutil.disk_usage(settings.DATA_DIR).free
    return min(wanted, int(free * DISK_SHARE) // (2 * REQUEST_BYTES))


def write_crowd(
    organization: uuid.UUID, project: uuid.UUID, *, requests: int, audit: int
) -> dict[str, int]:
    """Fill the tables, the two large ones side by side; answers with the rows of each."""
    now = datetime.now(UTC)
    for back in range(0, DAYS + 7, 7):
        services.make_partitions(now - timedelta(days=back))
    began = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        large = [
            threads.submit(_requests, organization, project, requests, now),
            threads.submit(_audit, organization, audit, now),
        ]
        for one in large:
            one.result()
    with psycopg.connect(superuser_dsn()) as connection:
        _nodes(connection, now)
        _keys(connection, organization, project)
    print(f"rows: {requests:,} requests, {audit:,} of audit, {NODES:,} nodes, {KEYS:,} keys,")
    print(f"      written in {time.monotonic() - began:.0f} s")
    return {"requests": requests, "audit": audit, "nodes": NODES, "keys": KEYS}


def _fill(table: str, statement: str, parameters: dict[str, Any]) -> None:
    with psycopg.connect(superuser_dsn(), autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET synchronous_commit = off")
        connection.execute(statement, parameters)
        connection.execute(f"VACUUM (ANALYZE) {table}")


def _requests(organization: uuid.UUID, project: uuid.UUID, rows: int, now: datetime) -> None:
    """Evenly over 30 days, of three keys; one in fifty failed."""
    start = now - timedelta(days=DAYS)
    at = "(%(start)s + n * %(step)s)::bigint"
    zero = [0] * len(SPANS)
    _fill(
        "request_records",
        "INSERT INTO request_records (request, organization, project, key, started_at, cost_nano,"
        " total_us, ttft_us, prompt_tokens, cached_tokens, output_tokens, status, stream, model,"
        " route, node, pool, region, operation, error_code, finish, safety, spans, receipt,"
        f" end_user) SELECT {ID.format(at=at)}, %(organization)s, %(project)s,"
        " ('0000000000000000000000000000000' || n %% 3)::uuid,"
        f" to_timestamp({at} / 1000.0), 9000 + n %% 5000, 400000 + hashint8(n) %% 300000,"
        " 60000 + hashint8(n) %% 50000, 900 + n %% 300, n %% 700, 120,"
        " CASE WHEN n %% 50 = 0 THEN 503 ELSE 200 END, n %% 3 > 0,"
        " (%(models)s::text[])[1 + n %% 4], CASE n %% 3 WHEN 0 THEN 'direct' ELSE 'chat@1' END,"
        " 'node-' || n %% 64, (%(pools)s::text[])[1 + n %% 2], (%(regions)s::text[])[1 + n %% 2],"
        " 'chat', CASE WHEN n %% 50 = 0 THEN 'overloaded' ELSE '' END,"
        " CASE WHEN n %% 5 = 0 THEN 'length' ELSE 'stop' END, '', %(spans)s, %(receipt)s, ''"
        " FROM generate_series(0, %(rows)s - 1) AS s(n)",
        {
            "start": int(start.timestamp() * 1_000),
            "step": DAYS * 86_400_000 / rows,
            "rows": rows,
            "organization": organization,
            "project": project,
            "models": list(MODELS),
            "pools": list(POOLS),
            "regions": list(REGIONS),
            "spans": pack_spans(zero, zero),
            "receipt": write_receipt(NONE),
        },
    )


def _audit(organization: uuid.UUID, rows: int, now: datetime) -> None:
    """Over a year, of 5,000 things, half of them the organization's."""
    at = "(%(start)s + n * %(step)s)::bigint"
    _fill(
        "audit_entries",
        "INSERT INTO audit_entries (id, created_at, actor_id, actor_label, organization_id, action,"
        " subject_type, subject_id, detail, before, after, channel, address, agent, credential)"
        f" SELECT {ID.format(at=at)}, to_timestamp({at} / 1000.0), NULL, 'operator',"
        " CASE WHEN n %% 2 = 0 THEN %(organization)s::uuid END,"
        " (ARRAY['apikey.create', 'apikey.revoke', 'budget.set', 'node.approve'])[1 + n %% 4],"
        " (ARRAY['ApiKey', 'ApiKey', 'Budget', 'Node'])[1 + n %% 4],"
        " lpad(to_hex(n %% 5000), 32, '0')::uuid, jsonb_build_object('label', 'key ' || n %% 5000),"
        " NULL, NULL, 'api', '10.0.0.1', 'terraform', 'adminkey'"
        " FROM generate_series(0, %(rows)s - 1) AS s(n)",
        {
            "start": int((now - timedelta(days=365)).timestamp() * 1_000),
            "step": 365 * 86_400_000 / rows,
            "rows": rows,
            "organization": organization,
        },
    )


def _nodes(connection: psycopg.Connection, now: datetime) -> None:
    """Ready on one gateway, which tells of them until long after the run."""
    later = now + timedelta(days=1)
    connection.execute(
        "INSERT INTO nodes (id, created_at, name, pool, region, state, standing,"
        " quarantine_reason, facts, last_seen_at) SELECT gen_random_uuid(), now(), 'many-' || n,"
        " 'default', 'local', 'connected', 'active', '', %s, now() FROM generate_series(1, %s) n",
        [json.dumps(FACTS), NODES],
    )
    connection.execute(
        "INSERT INTO node_links (node_id, gateway, facts, seen_at)"
        " SELECT id, 'bench', %s, %s FROM nodes WHERE name LIKE 'many-%%'",
        [json.dumps(LINK), later],
    )
    connection.execute(
        "INSERT INTO model_digests (id, created_at, model, digest, state, offered_by)"
        " SELECT gen_random_uuid(), now(), 'sluice-5m', %s, 'approved', 'many-1'",
        ["0" * 64],
    )


def _keys(connection: psycopg.Connection, organization: uuid.UUID, project: uuid.UUID) -> None:
    connection.execute(
        "INSERT INTO api_keys (id, created_at, organization_id, project_id, key_id, digest,"
        " redacted, label, read_only, networks, tags, priority, revoked_reason)"
        " SELECT gen_random_uuid(), now(), %s, %s, 'many' || lpad(n::text, 8, '0'),"
        " sha256(n::text::bytea), 'sk_sluice_…', 'key ' || n, false, '{}', '{}', 1, ''"
        " FROM generate_series(1, %s) n",
        [organization, project, KEYS],
    )
