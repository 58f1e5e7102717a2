"""The demo configuration: everything a first request needs, made once, secrets shown once."""

import json
import stat
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command

from controlplane.bridge.configuration.snapshot import SnapshotSource
from controlplane.catalog.selectors import model_find
from controlplane.composed.demo import EMBED_MODEL
from controlplane.core.database_roles import conninfo_of
from controlplane.embedded.demo import parse
from controlplane.gateway.snapshot import Limits
from controlplane.kernel.keys.format import NODE_PREFIX, parse_credential
from controlplane.tenants.sign_in.accounts import setup_link_consume, user_find
from tests.support.orm import orm

pytestmark = pytest.mark.usefixtures("database")
FILE = "node-credential"
EMBED_FILE = "embed-credential"


@pytest.fixture(autouse=True)
def no_credential_file() -> None:
    for name in (FILE, EMBED_FILE):
        (settings.DATA_DIR / "secrets" / name).unlink(missing_ok=True)


def bootstrap(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command("bootstrap_demo", *arguments, stdout=out)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def test_the_first_start_makes_everything_and_the_second_nothing() -> None:
    first = bootstrap()
    assert first["first_start"] is True
    assert parse_credential(first["api_key"])
    assert parse_credential(first["node_credential"], NODE_PREFIX)
    file = settings.DATA_DIR / "secrets" / FILE
    assert file.read_text().strip() == first["node_credential"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    second = bootstrap()
    assert (second["first_start"], second["api_key"]) == (False, None)
    assert second["node_credential"] is None
    # No password was set yet: another link, and the first one is spent.
    assert second["setup_path"] not in (None, first["setup_path"])


def test_the_setup_link_ends_with_the_password() -> None:
    token = bootstrap()["setup_path"].rpartition("/")[2]
    admin = user_find(email="admin@localhost")
    assert admin is not None and not admin.has_usable_password()
    setup_link_consume(token=token, password="a long enough passphrase")
    assert bootstrap()["setup_path"] is None


def test_a_lost_credential_is_replaced() -> None:
    first = bootstrap()
    asked = bootstrap("--new-node-credential")["node_credential"]
    assert asked not in (None, first["node_credential"])
    (settings.DATA_DIR / "secrets" / FILE).unlink()
    assert bootstrap()["node_credential"] not in (None, asked)


async def test_gateways_can_serve_it() -> None:
    first = await orm(bootstrap)()
    source = SnapshotSource(conninfo_of(settings.DATABASES["gateway"]), salt_secret=b"s" * 32)
    source.start()
    try:
        await source.wait_loaded(5)
    finally:
        await source.close()
    (key,) = source.current.keys.values()
    assert key.key_id in first["api_key"]
    assert key.budgets == (key.organization,)
    assert key.limits == Limits(requests_per_min=6_000, tokens_per_min=6_000_000)
    model = source.current.models["sluice-5m"]
    assert model.price.output_pico >= 3 * model.price.input_pico


def test_the_starter_reads_the_answer() -> None:
    out = StringIO()
    call_command("bootstrap_demo", stdout=out)
    demo = parse(out.getvalue())
    assert demo.api_key and demo.node_credential and demo.setup_path


def test_a_node_that_embeds_is_made_when_asked_for() -> None:
    plain = bootstrap()
    assert plain["embed_credential"] is None and model_find(name=EMBED_MODEL.name) is None
    first = bootstrap("--embed")
    assert parse_credential(first["embed_credential"], NODE_PREFIX)
    assert first["node_credential"] is None
    file = settings.DATA_DIR / "secrets" / EMBED_FILE
    assert file.read_text().strip() == first["embed_credential"]
    made = model_find(name=EMBED_MODEL.name)
    assert made is not None and (made.task, made.pool) == ("embed", "embeddings")
    assert bootstrap("--embed")["embed_credential"] is None
