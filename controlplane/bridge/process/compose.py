"""Puts the gateway together: ports, fleet and HTTP edge of one process, from the settings."""

import asyncio
import uuid
from collections.abc import Coroutine
from functools import partial
from typing import Any

import structlog
from django.conf import settings
from django.utils.module_loading import import_string

from controlplane.bridge.batches.store import PostgresBatches
from controlplane.bridge.configuration.keys import SNAPSHOT_AGE_S_MAX, SnapshotKeys
from controlplane.bridge.configuration.snapshot import SnapshotSource
from controlplane.bridge.contents.store import PostgresContents
from controlplane.bridge.fleet.gateways import GatewayList, LinkReporter
from controlplane.bridge.fleet.handshakes import Handshakes
from controlplane.bridge.fleet.store import FleetStore
from controlplane.bridge.http.connection import DOORS
from controlplane.bridge.http.links import fetch_from
from controlplane.bridge.limits.limiter import RedisLimiter
from controlplane.bridge.limits.rate_share import Gateways
from controlplane.bridge.limits.sizes import RedisSizes
from controlplane.bridge.metrics import figures
from controlplane.bridge.metrics.page import metrics_page
from controlplane.bridge.metrics.scraped import Scraped
from controlplane.bridge.money.claims import PostgresClaims
from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.bridge.money.settlements import QUEUE_MAX as SETTLEMENTS_MAX
from controlplane.bridge.money.standings import PostgresStandings
from controlplane.bridge.process.drain import DrainFirst
from controlplane.bridge.record.hygiene import PostgresHygiene
from controlplane.bridge.record.recorder import QUEUE_MAX as ROWS_WAITING_MAX
from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.bridge.record.traces import TraceQueue
from controlplane.bridge.record.waiting import WaitingSampler
from controlplane.bridge.safety.client import SafetyClient
from controlplane.core.database_roles import conninfo_of
from controlplane.core.jobs.process import ProcessFacts
from controlplane.gateway.app_state import AppState
from controlplane.gateway.batches.runner import BatchRunner
from controlplane.gateway.http.app import GatewayApp
from controlplane.gateway.http.exchange import Exchange
from controlplane.gateway.nodes.limits import LinkLimits
from controlplane.gateway.nodes.measured.times import Bound
from controlplane.gateway.nodes.models import Approval
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.nodes.reports import ticket_key
from controlplane.gateway.places import Places
from controlplane.gateway.snapshot import Snapshot
from inference.contract.frames import Report

OTLP = "controlplane.bridge.record.otlp.make_export"
SHARED_S_MAX = 1.0
# Below what a supervisor waits before it kills.
DRAIN_S_MAX = 8.0
DAY_S = 86_400
MS_PER_S = 1_000
PROXIES_TOLD_MAX = 16
# The class of statuses that are this side's fault.
FAULTS = 5
LIMITS_ALONE = "Redis cannot be reached: each gateway enforces its share of the limits by itself"

log = structlog.get_logger(__name__)


def _keys(source: SnapshotSource) -> SnapshotKeys:
    return SnapshotKeys(
        source,
        pepper=settings.KEY_PEPPER,
        peppers_before=settings.KEY_PEPPERS_BEFORE,
        play_secret=settings.PLAYGROUND_TOKEN_KEY,
    )


class RunningGateway:
    """The hot path with everything it reaches; made before the loop runs, opened by `start`."""

    def __init__(self, conninfo: str) -> None:
        self.instance = instance = uuid.uuid4().hex
        self.source = SnapshotSource(
            conninfo, salt_secret=settings.CACHE_SALT_SECRET, changed=self._configured
        )
        self.ledger = PostgresLedger(
            conninfo, hold_s=settings.LEDGER_HOLD_S, settle_s=settings.LEDGER_SETTLE_S
        )
        self.claims = PostgresClaims(
            conninfo, open_s=settings.REQUEST_DEADLINE_S + settings.HOLD_GRACE_S
        )
        self.traces = _traces(instance)
        self.recorder = PostgresRecorder(conninfo, self.traces)
        self.hygiene = PostgresHygiene(conninfo)
        self.safety = SafetyClient(settings.DATA_DIR / "safety.sock", settings.SAFETY_S)
        self.fleet_port = FleetStore(
            conninfo,
            pepper=settings.KEY_PEPPER,
            peppers_before=settings.KEY_PEPPERS_BEFORE,
            trust_first_digest=settings.TRUST_FIRST_DIGEST,
        )
        self.handshakes = Handshakes(settings.TRUSTED_PROXIES)
        self.fleet = Fleet(
            instance,
            ticket_keys=[
                ticket_key(each) for each in (settings.KEY_PEPPER, *settings.KEY_PEPPERS_BEFORE)
            ],
            on_report=self._on_report,
            pools=settings.POOLS,
            port=self.fleet_port,
            limits=_link_limits(),
        )
        self.standings = PostgresStandings(conninfo)
        self.batches = PostgresBatches(conninfo)
        self.contents = PostgresContents(conninfo, lambda: self.source.current.projects)
        reply = _learned_ms(settings.LIMITER_REPLY_MS)
        self.sizes = RedisSizes(settings.REDIS_URL, reply=reply)
        self._stores = (
            self.ledger, self.claims, self.standings, self.recorder, self.hygiene,
            self.batches, self.contents, self.sizes, self.fleet_port,
        )  # fmt: skip
        # Until the configuration is here nothing counts as approved.
        self.fleet.approve({})
        self.gateways = GatewayList(
            conninfo,
            instance=instance,
            url=settings.ADVERTISE_URL,
            pools=settings.POOLS,
            changed=self.fleet.tell_gateways,
        )
        self._limiter: RedisLimiter | None = None
        self._sampler: WaitingSampler | None = None
        self._reporter: LinkReporter | None = None
        self._app: GatewayApp | None = None
        self._runner: BatchRunner | None = None
        self._scraped = Scraped()
        self._drain_first = DrainFirst(self._drain)

    def answer(self, exchange: Exchange) -> Coroutine[Any, Any, None]:
        if self._app is None:
            raise RuntimeError("the gateway has not been started")
        return self._app.answer(exchange)

    async def start(self) -> None:
        """Open all lanes. Returns whether PostgreSQL and Redis are there or not: they may come."""
        limiter = RedisLimiter(
            settings.REDIS_URL,
            snapshot=lambda: self.source.current,
            gateways=Gateways(
                self.instance,
                living=lambda: len(self.gateways.current),
                division=lambda: self.gateways.share,
            ),
            reply=_learned_ms(settings.LIMITER_REPLY_MS),
        )
        # The limiter before the list: others must not know of a gateway that Redis does not.
        for part in (self.source, *self._stores, limiter, self.gateways):
            part.start()
        if self.traces is not None:
            self.traces.start()
        self._limiter = limiter
        state = AppState(
            keys=_keys(self.source),
            limiter=limiter,
            ledger=self.ledger,
            claims=self.claims,
            standings=self.standings,
            batches=self.batches,
            recorder=self.recorder,
            safety=self.safety,
            waste=self.hygiene,
            fetch=fetch_from(settings.IMAGE_HOSTS),
            contents=self.contents,
            shared_sizes=self.sizes,
            fleet=self.fleet,
            region=settings.REGION,
            places=Places(
                header=settings.REGION_HEADER,
                networks=settings.REGION_NETWORKS,
                trusted_proxies=settings.TRUSTED_PROXIES,
            ),
            trusted_proxies=settings.TRUSTED_PROXIES,
            pages_origins=frozenset(settings.PAGES_ORIGINS),
            trace_ratio=settings.TRACES_RATIO if self.traces is not None else None,
            node_header=settings.NODE_HEADER,
            request_deadline_s=settings.REQUEST_DEADLINE_S,
            hold_grace_s=settings.HOLD_GRACE_S,
            body_s=settings.BODY_S,
            send_s=settings.SEND_S,
            batch_file_bytes=settings.BATCH_FILE_MIB << 20,
            batch_files_s=settings.BATCH_FILES_DAYS * DAY_S,
        )
        self._app = GatewayApp(state)
        self._runner = self._run_batches(state)
        self._sampler = WaitingSampler(state, self.recorder)
        self._sampler.start()
        self._reporter = LinkReporter(
            state, self.fleet_port, self.recorder, limits_shared=lambda: limiter.shared
        )
        self._reporter.start()
        self._drain_first.install()
        await limiter.wait_shared(SHARED_S_MAX)

    def _run_batches(self, state: AppState) -> BatchRunner | None:
        share = settings.BATCH_SHARE_PERCENT / 100
        per_s, alive = settings.BATCH_LINES_PER_S, self.gateways.listed
        if not share:
            return None
        return BatchRunner(state, me=self.instance, share=share, per_s=per_s, lives=alive)

    async def stop(self) -> None:
        """Let nodes go, settle what is open, write what was measured, close."""
        if self._app is None or self._limiter is None or self._sampler is None:
            return
        self._drain_first.remove()
        if self._runner is not None:
            await self._runner.close(0.0)
        await self.gateways.close()
        await self._sampler.close()
        if self._reporter is not None:
            await self._reporter.close()
        await self.fleet.close()
        await self._app.state.drain()
        await self.safety.close()
        for part in (*self._stores, self._limiter, self.source):
            await part.close()
        if self.traces is not None:
            await self.traces.close()

    def readiness(self) -> dict[str, Any]:
        """Facts about this gateway; `ready` while it has its configuration, not too old to check
        keys by, and its ledger. `degraded` says what works less well.

        Without a node it is ready all the same: a pool at rest is woken by a request.
        """
        models, problems = self.fleet.models(), self._problems()
        return {
            "ready": not problems,
            "configuration_version": self.source.current.version,
            "ledger": not self.ledger.away,
            "nodes": sum(link.reachable for link in self.fleet.nodes().values()),
            "nodes_ejected": self.fleet.ejected,
            "jobs": sum(link.account.active for link in self.fleet.nodes().values()),
            "models": sorted(models),
            "gateways": len(self.gateways.current),
            "limits_shared": self._limits_shared,
            "configuration_age_s": round(self.source.age_s, 1) if self.source.loaded else None,
            "problems": problems,
            "degraded": [] if self._limits_shared else [LIMITS_ALONE],
        }

    def told(self) -> ProcessFacts:
        """What heartbeats say of this gateway; nothing before it has started."""
        if self._app is None:
            return ProcessFacts({})
        facts = self.readiness()
        links = [link.account for link in self.fleet.nodes().values()]
        queued = sum(each.waiting for each in self._app.state.waiting.kinds().values())
        counted = self.recorder.totals.requests
        return ProcessFacts(
            levels={
                "connections": (DOORS.open, DOORS.open_max),
                "queued requests": (queued, 0),
                "jobs on nodes": (
                    sum(account.active for account in links),
                    sum(account.credits for account in links),
                ),
                "settlements pending": (self.ledger.settlements_pending, SETTLEMENTS_MAX),
                "telemetry rows pending": (self.recorder.rows_waiting, ROWS_WAITING_MAX),
            },
            counts={
                "requests": counted.total(),
                "failed": sum(n for (*_, kind), n in counted.items() if kind == FAULTS),
                "traces": self.traces.exported if self.traces else 0,
            },
            proxies=dict(DOORS.proxies.most_common(PROXIES_TOLD_MAX)),
            problem="; ".join([*facts["problems"], *facts["degraded"]]),
            instance=self.instance,
        )

    async def metrics(self, *, late_s: float) -> bytes:
        """What this process tells Prometheus; empty before it has started."""
        if self._app is None:
            return b""
        return await self._scraped.page(partial(self._metrics, self._app, late_s))

    async def _metrics(self, app: GatewayApp, late_s: float) -> bytes:
        await self.recorder.fold()
        own = (
            *figures.readiness_figures(self.readiness()),
            figures.Figure("sluice_requests_under_way", "gauge", "Requests here now", app.serving),
            figures.Figure(
                "sluice_configuration_age_seconds",
                "gauge",
                "Time since the configuration was last known to be the newest",
                self.source.age_s,
            ),
            figures.Figure(
                "sluice_telemetry_age_seconds",
                "gauge",
                "Time since series were last written to PostgreSQL",
                self.recorder.written_s_ago,
            ),
            figures.Figure(
                "sluice_event_loop_late_seconds",
                "gauge",
                "How late the event loop came at worst in the last half minute",
                late_s,
            ),
            *figures.trace_figures(self.traces),
            *figures.connection_figures(DOORS, self.handshakes),
            *figures.process_figures(),
        )
        return metrics_page(app.state, self.recorder, own).to_bytes()

    @property
    def _limits_shared(self) -> bool:
        return self._limiter is not None and self._limiter.shared

    def _problems(self) -> list[str]:
        found = []
        if self._app is None or self._app.draining:
            found.append("the gateway is starting or stopping")
        if not self.source.current.version:
            found.append("there is no configuration yet")
        elif self.source.age_s > SNAPSHOT_AGE_S_MAX:
            found.append("the configuration is too old to check keys by: it cannot be read")
        if self.ledger.away:
            found.append("PostgreSQL cannot be reached")
        return found

    async def _drain(self) -> None:
        if self._app is not None:
            closing = [] if self._runner is None else [self._runner.close(DRAIN_S_MAX)]
            idle, *_ = await asyncio.gather(self._app.drain(DRAIN_S_MAX), *closing)
            if not idle:
                log.warning("requests_cut", seconds_max=DRAIN_S_MAX)
        # The links are closed next: nodes that learn of their charges by then keep no reports.
        self.fleet.reports.send_acks()

    def _configured(self, snapshot: Snapshot) -> None:
        self.fleet.approve(
            {
                model.name: Approval(digests=model.digests, context_window=model.context_window)
                for model in snapshot.models.values()
            }
        )
        self.recorder.objectives.configure(snapshot.objectives)
        if any(project.safety != "off" for project in snapshot.projects.values()):
            self.safety.start_process()

    async def _on_report(self, report: Report, gateway: str) -> bool:
        served = gateway != self.instance and self.gateways.may_live(gateway)
        return await self.ledger.settle_report(report, served=served)


def _link_limits() -> LinkLimits:
    """The times that links to nodes keep."""
    return LinkLimits(
        pong_timeout_s=settings.NODE_PONG_S,
        progress_timeout_s=settings.NODE_STALLED_S,
        cancel_confirm_s=settings.NODE_CANCEL_S,
        quiet=Bound(*map(float, settings.NODE_QUIET_S)),
        first_token=Bound(*map(float, settings.FIRST_TOKEN_S)),
        inter_token=Bound(*map(float, settings.TOKEN_GAP_S)),
        told_tokens=_learned_ms(settings.TOKENS_MS),
    )


def _learned_ms(pair: tuple[int, ...]) -> Bound:
    return Bound(*(each / MS_PER_S for each in pair))


def _traces(instance: str) -> TraceQueue | None:
    """None where no collector is named: its library is loaded only for one."""
    if not settings.TRACES_ENDPOINT:
        return None
    return TraceQueue(import_string(OTLP)(settings.TRACES_ENDPOINT, instance))


def build_gateway() -> RunningGateway:
    return RunningGateway(conninfo_of(settings.DATABASES["gateway"]))
