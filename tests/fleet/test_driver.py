"""The local driver with real node processes: up to the minimum, up with load, down, no mess."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from django.conf import settings
from django.utils import timezone

from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.core.audit.entries import OPERATOR
from controlplane.embedded.supervisor import Supervisor
from controlplane.fleet.driver import Driver, DriverHost, command_of
from controlplane.fleet.models import Node, NodeStatus, PoolScale
from controlplane.fleet.overview import fleet_view
from tests.support.loopback import HOST
from tests.support.money import rows
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import wait_for

ECHO = f"python -m inference --engine echo --model {settings.SHIPPED_MODEL_DIR} --credits 8"


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    """A gateway without nodes."""
    with running_product(servers, Plan(nodes=0)) as running:
        yield running


@pytest.fixture
def driver(product: Product, tmp_path: Path) -> Iterator[Driver]:
    """A driver whose nodes dial that gateway; nothing of it is left running."""
    supervisor = Supervisor(folder=settings.BASE_DIR, logs=tmp_path, say=print)
    place = DriverHost(f"ws://{HOST}:{product.ports[0]}", "host")
    made = Driver(place, supervisor)
    yield made
    made.stop()
    assert not [each for each in _processes() if " -m inference " in each]


def _processes() -> list[str]:
    children = psutil.Process().children()
    return [
        " ".join(child.cmdline()) for child in children if child.status() != psutil.STATUS_ZOMBIE
    ]


def _until(driver: Driver, true: Callable[[], bool]) -> None:
    def stepped() -> bool:
        driver.step()
        return true()

    wait_for(stepped)


def _ready() -> int:
    views = fleet_view(actor=OPERATOR, now=timezone.now())
    return sum(view.load.nodes_ready for view in views if view.pool.name == "default")


def _pool(**values: object) -> None:
    draft = PoolDraft(name="default", start_command=ECHO, **values)  # type: ignore[arg-type]
    pool_set(actor=OPERATOR, draft=draft)


def test_nodes_follow_the_signal_up_and_down(product: Product, driver: Driver) -> None:
    _pool(nodes_min=1, nodes_max=2)
    _until(driver, lambda: _ready() == 1)
    assert driver.names == {"default-host-1"}
    assert Node.objects.get(name="default-host-1").facts["cold_start_ms"] > 0
    # A queue that one node cannot take asks for more than there may be.
    waiting = json.dumps({"pools": {"default": 500}})
    rows("SELECT fleet_links('another', '[]'::jsonb, %s::jsonb)", waiting)
    _until(driver, lambda: len(driver.names) == 2)
    rows("SELECT fleet_links('another', '[]'::jsonb, '{}'::jsonb)")
    # A calm that has lasted: the clock of the signal's memory is put back.
    driver.step()
    assert len(driver.names) == 2
    rows("UPDATE pool_scales SET low_since = now() - interval '1 hour', low_peak = 1")
    _until(driver, lambda: driver.names == {"default-host-1"})
    gone = Node.objects.filter(name="default-host-2", standing=NodeStatus.REMOVED)
    _until(driver, gone.exists)
    assert _ready() == 1
    assert PoolScale.objects.get(pool__name="default").desired == 1


def test_a_killed_node_is_started_again(product: Product, driver: Driver) -> None:
    _pool(nodes_min=1, nodes_max=1)
    _until(driver, lambda: _ready() == 1)
    (before,) = [p for p in psutil.Process().children() if "default-host-1" in p.cmdline()]
    before.kill()
    before.wait()
    epoch = Node.objects.get(name="default-host-1").facts["epoch"]
    _until(
        driver,
        lambda: Node.objects.get(name="default-host-1").facts["epoch"] != epoch and _ready() == 1,
    )


def test_python_is_this_installations_own() -> None:
    assert command_of("python -m x 'a b'") == [sys.executable, "-m", "x", "a b"]
    assert command_of("/opt/run node") == ["/opt/run", "node"]
