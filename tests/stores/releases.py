"""What asks PostgreSQL and Redis, on each release of them that there is: `python -m
tests.stores.releases [words of names]`, after `make test-matrix` has fetched the programs.

A line for each release; 1 where a test failed on one, or one is not what it is called.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from controlplane.embedded.layout import reachable, server_account
from tests.support.servers import OTHER_POSTGRES

ROOT = Path(__file__).parents[2]
STORES = ROOT / ".stores"
FETCHED = STORES / "releases"
PROCESSES = os.environ.get("TEST_PROCESSES", "4")
# All migrations run on each before the first of these.
POSTGRES_TESTS = (
    "billing/budgets", "billing/invoices", "billing/ledger", "billing/payments",
    "billing/reversals", "billing/verification", "billing/wallets", "bridge/money",
    "bridge/postgres", "bridge/record", "core/test_audit_chain.py", "core/test_database_roles.py",
    "embedded/test_servers_fixture.py", "quotas", "telemetry", "tenants/test_isolation.py",
)  # fmt: skip
REDIS_TESTS = (
    "bridge/limits", "bridge/process", "composed/test_dials.py", "contracts/test_limiter.py",
    "core/test_lives.py", "core/test_throttles.py", "embedded/test_redis_server.py",
    "embedded/test_servers_fixture.py", "faults/test_redis.py", "product/test_limits.py",
    "quotas", "requirements/test_c3_quotas_across_gateways.py", "requirements/test_s6_jobs.py",
    "stores/test_sentinel.py", "test_asgi.py",
)  # fmt: skip
