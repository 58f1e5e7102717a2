"""Everything outside one request that the stages need, made once per process."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from controlplane.gateway import ports, ports_contents
from controlplane.gateway.after.hygiene import HygieneWatch
from controlplane.gateway.after.misses.teller import MissTeller
from controlplane.gateway.call import REQUEST_DEADLINE_S, Call
from controlplane.gateway.nodes.measured.retries import RetryBudget
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.nodes.tokens import ToldTokens
from controlplane.gateway.places import Places
from controlplane.gateway.s1_admission.body import BODY_READ_S_MAX, bodies_budget
from controlplane.gateway.s1_admission.helpers.offload import Offload
from controlplane.gateway.s1_admission.hold import HOLD_GRACE_S
from controlplane.gateway.s4_route.choice.memory import RoutingMemory
from controlplane.gateway.s4_route.queue.unmet import Unmet
from controlplane.gateway.s4_route.saturation import WaitingRoom
from controlplane.gateway.sizing import SharedSizes, SizeMemory
from controlplane.gateway.tasks.preflight_turns import Preflights

SEND_S_MAX = 30.0
MODERATIONS_MAX = 32
FETCHES_MAX = 8
UPLOADS_MAX = 8


@dataclass(kw_only=True)
class AppState:
    """The ports, the fleet and the tasks that outlive a request.

    `trace_ratio` of the traces that begin here are recorded; None where traces are off. A request
    takes `request_deadline_s` at most, and its hold lasts `hold_grace_s` longer; its body arrives
    within `body_s`, and its client may read nothing for `send_s`. With `node_header`
    clients are told which node served them. Files of batches have at most `batch_file_bytes`.
    """

    keys: ports.Keys
    limiter: ports.Limiter
    ledger: ports.Ledger
    claims: ports.Claims
    standings: ports.Standings
    batches: ports_contents.Batches
    recorder: ports.Recorder
    safety: ports.Safety
    waste: ports.Hygiene
    fetch: ports_contents.FetchLink
    contents: ports_contents.Contents
    fleet: Fleet
    region: str
    places: Places = field(default_factory=Places)
    trusted_proxies: tuple[str, ...] = ()
    pages_origins: frozenset[str] = frozenset()
    trace_ratio: float | None = None
    node_header: bool = False
    request_deadline_s: int = REQUEST_DEADLINE_S
    shared_sizes: SharedSizes | None = None
    hold_grace_s: int = HOLD_GRACE_S
    body_s: float = BODY_READ_S_MAX
    send_s: float = SEND_S_MAX
    batch_file_bytes: int = 200 << 20
    batch_files_s: int = 30 * 86_400

    def __post_init__(self) -> None:
        self.retries = RetryBudget()
        self.waiting = WaitingRoom(self.fleet)
        self.unmet = Unmet()
        self.misses = MissTeller()
        self.tokens = ToldTokens()
        self.preflights = Preflights()
        self.hygiene = HygieneWatch(self.waste)
        self.routing = RoutingMemory()
        self.sizes = SizeMemory(self.shared_sizes)
        self.offload = Offload()
        self.pictures, self.fetches = Offload(), Offload(FETCHES_MAX)
        # Requests that came, but for lines of batches, each of which has a copy of this.
        self.served = 0
        # Requests that run without their clients, by id, each with its organization.
        self.background: dict[bytes, tuple[str, Call]] = {}
        self.moderations = asyncio.Semaphore(MODERATIONS_MAX)
        self.uploads = asyncio.Semaphore(UPLOADS_MAX)
        self.bodies = bodies_budget()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pools(self) -> frozenset[str]:
        return self.fleet.pools

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work that must end even if the request's own task is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def drain(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.offload.close()
        self.pictures.close()
        self.fetches.close()
