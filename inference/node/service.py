"""The node itself: one engine, one link per gateway, who gets which output and how many credits.

Starting and stopping the process is `inference/__main__.py`'s.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Coroutine, Sequence
from enum import Enum
from typing import Any

import msgspec

from inference.contract import frames
from inference.contract.drain import Drain, Draining, Undrain
from inference.contract.roofline import RUNS_ON, ComputePath
from inference.contract.tokens import Tokenize
from inference.contract.version import VERSION
from inference.engines.base import Engine
from inference.errors import JobRefused, ModelError
from inference.node.assets import Assets
from inference.node.cache import CacheNews
from inference.node.credits import GREETING, CreditShares
from inference.node.drain import Rest
from inference.node.gateways import GatewayLinks
from inference.node.jobs import JobTable
from inference.node.link import Fenced, GatewayLink
from inference.node.load import Load, Pulse
from inference.node.offers import offers_of
from inference.node.options import HOUSEKEEPING_S, LOAD_INTERVAL_S, STEP_S_MAX, NodeOptions
from inference.node.probe import Probe, process_age_s, start_engine
from inference.node.prompts import Prompts
from inference.node.tokens import tell_tokens

log = logging.getLogger(__name__)

EPOCH_BYTES = 16
PROBE_FAILURES_MAX = 3


class Stop(Enum):
    """Why the node stopped without a signal; the value is the exit status of the process."""

    ENGINE_DIED = 3
    FENCED = 4
    LINK_FAILED = 5


class Node:
    """Implements `EngineEvents` towards the engine and `LinkHub` towards the links."""

    def __init__(self, engine: Engine, assets: Assets, options: NodeOptions) -> None:
        self.jobs = JobTable()
        self.draining = False
        self.rest = Rest(self)
        self.stopped: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()
        self._engine = engine
        self._prompts = Prompts(engine)
        self._assets = assets
        self._options = options
        self._epoch = secrets.token_hex(EPOCH_BYTES)
        self._cold_start_ms = 0
        self._path: ComputePath | None = None
        self._probe: Probe | None = None
        self._worked_s = 0.0
        self._load = Load(self.jobs)
        self._pulse = Pulse(engine)
        self._serving = False
        # What each gateway knows of what is served.
        self._told: dict[str, frames.Offers] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        facts = engine.facts
        self._credits = CreditShares(min(options.credits or facts.credits, facts.credits))
        self.links = GatewayLinks(
            options.gateways, pool=options.pool, dial=self._dial, drop=self._drop
        )
        self._news = CacheNews(self.links.send_all)

    async def start(self) -> None:
        """Load the engine, prove it with one token, dial all gateways; raises `ModelError`."""
        began_s = time.monotonic()
        await start_engine(self._engine, self)
        loaded_s = time.monotonic() - began_s
        probe_s = await self._prove(measure=True)
        self._cold_start_ms = round(process_age_s() * 1000)
        log.info(
            "engine ready load_s=%.2f probe_ms=%.1f cold_start_ms=%d",
            loaded_s, probe_s * 1000, self._cold_start_ms,
        )  # fmt: skip
        if self._path is not None:
            log.info("%s%s", RUNS_ON, self._path.words)
        self._serving = True
        for link in self.links:
            self._run(self._keep(link))
        self._run(self._keep_house())
        self._run(self._share())
        if self._options.probe_interval_s and self._engine.facts.probed:
            self._run(self._probe_when_idle())

    async def run(self) -> int:
        """Start, and serve until it stops by itself; returns the exit status of the process."""
        await self.start()
        return (await self.stopped).value

    async def close(self) -> None:
        self.rest.end()
        self._news.stop()
        await asyncio.gather(*(link.hang_up() for link in self.links))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._engine.close()

    def cancel_all(self) -> None:
        for request in self.jobs.requests():
            self._prompts.cancel(request)

    def hand_back(self) -> int:
        """Give jobs of which nothing was delivered back to their gateways; returns how many."""
        refused = JobRefused("draining", "the node stops before it could begin")
        requests = self.jobs.untouched()
        for request in requests:
            self.on_refused(request, refused)
            self._prompts.cancel(request)
        return len(requests)

    # `EngineEvents`.

    def on_step(self, step: frames.Step) -> None:
        """Send each gateway its own outputs, all of them the load, and one of them the counts."""
        step = self._prompts.whole(step)
        if step.outputs:
            self._worked_s = time.monotonic()
        if self._probe is not None:
            self._probe.on_step(step)
        self._load.stepped(step)
        now = time.monotonic()
        groups = self.jobs.split(step.outputs, now)
        idle = self._news.idle = not step.running and not step.waiting
        if idle:
            self._news.flush()
        for link in self.links:
            outputs = groups.get(link.url)
            if outputs is None:
                if idle or step.processing or link.load_due(now):
                    bare = msgspec.structs.replace(
                        step, outputs=[], drafted=0, accepted=0, preemptions=0
                    )
                    link.send_step(self._load.for_gateway(bare, link.url), now)
            elif len(outputs) == len(step.outputs):
                link.send_step(self._load.for_gateway(step, link.url), now)
            else:
                mine = msgspec.structs.replace(step, outputs=outputs)
                link.send_step(self._load.for_gateway(mine, link.url), now)
                step = msgspec.structs.replace(step, drafted=0, accepted=0, preemptions=0)

    def on_kv(self, events: frames.KvEvents) -> None:
        self._news.add(events)

    def on_refused(self, request: bytes, refused: JobRefused) -> None:
        if self._probe is not None and self._probe.request == request:
            self._probe.on_refused(request, refused)
            return
        request = self._prompts.refused(request)
        owner = self.jobs.discard(request)
        for link in self.links:
            if link.url == owner:
                link.send(frames.Rejected(request=request, code=refused.code, message=str(refused)))

    def on_death(self, error: BaseException) -> None:
        """Stop; the supervisor starts a new process, which registers with a new epoch."""
        log.error("engine died error=%s: %s", type(error).__name__, error)
        if self._probe is not None:
            self._probe.on_death(error)
        self._stop(Stop.ENGINE_DIED)

    # `LinkHub`.

    def hello(self, link: GatewayLink) -> frames.Hello:
        """The first frame, with an even share of the credits as far as they are free."""
        facts, options = self._engine.facts, self._options
        credits = self._credits.greet(link.url, len(self.links), self.jobs.held())
        offers = self._told[link.url] = offers_of(facts, self._assets.digest)
        return frames.Hello(
            protocol=frames.PROTOCOL_VERSION,
            node=options.name,
            epoch=self._epoch,
            pool=options.pool,
            region=options.region,
            engine=facts.engine,
            device=facts.device,
            dtype=facts.dtype,
            block_size=facts.block_size,
            kv_blocks=facts.kv_blocks,
            credits=credits,
            capabilities=offers.capabilities,
            models=offers.models,
            cold_start_ms=self._cold_start_ms,
            ceilings=facts.ceilings,
            silence_s=STEP_S_MAX if facts.reports_steps else facts.silence_s,
            path=self._path,
            release=VERSION,
        )

    def on_welcome(self, link: GatewayLink, frame: frames.Welcome, before: str) -> None:
        """A link is up: its index starts from a snapshot, kept reports go out at once."""
        self._credits.taken(link.url, GREETING)
        if self.draining:
            link.send(Draining(deadline_s=self._options.drain_deadline_s))
        self._send_snapshot(link)
        self.links.listed(link, frame.gateways)
        if before not in ("", link.gateway) and self.links.stands_alone(link):
            self.jobs.bequeath(before)
        self.jobs.connect(link.gateway)
        self._send_reports(link)

    def on_break(self, link: GatewayLink) -> None:
        """Its jobs run on for a while, since the gateway may be reached again."""
        self.jobs.suspend(link.url)

    def on_resumed(self, link: GatewayLink) -> None:
        self.jobs.resume(link.url)

    def on_lost(self, link: GatewayLink) -> None:
        """No one reads the outputs of these jobs any more."""
        self._credits.leave(link.url)
        lost = self.jobs.disconnect(link.url)
        for request in lost:
            self._prompts.cancel(request)
        if lost:
            log.warning("jobs cancelled count=%d url=%s", len(lost), link.url)

    def reached(self) -> bool:
        return bool(self.links.connected())

    def reached_otherwise(self, link: GatewayLink) -> bool:
        return any(each.gateway == link.gateway for each in self.links.connected())

    def on_frame(self, link: GatewayLink, frame: frames.FromGateway) -> None:
        if isinstance(frame, frames.Job):
            self._on_job(link, frame)
        elif isinstance(frame, frames.Cancel):
            if self.jobs.owned_by(frame.request, link.url):
                self._prompts.cancel(frame.request)
        elif isinstance(frame, frames.Ack):
            self.jobs.acknowledge(frame.requests, link.url, link.gateway)
        elif isinstance(frame, frames.CreditsTaken):
            self._credits.taken(link.url, frame.number)
        elif isinstance(frame, frames.Gateways):
            self.links.listed(link, frame.gateways)
        elif isinstance(frame, frames.AssetRequest):
            for part in self._assets.parts(frame.digest):
                link.send(part)
        elif isinstance(frame, frames.KvSnapshotRequest):
            self._send_snapshot(link)
        elif isinstance(frame, Tokenize):
            self._run(tell_tokens(self._engine, link, frame))
        elif isinstance(frame, Drain | Undrain):
            self.rest.obey(frame)

    def _on_job(self, link: GatewayLink, job: frames.Job) -> None:
        try:
            if self.draining or self.rest:
                raise JobRefused("draining", "the node takes no new jobs")
            self._load.arrived(self.jobs.accept(job, link.url, link.gateway))
            try:
                self._prompts.submit(job)
            except JobRefused:
                self.jobs.discard(job.request)
                raise
        except JobRefused as refused:
            link.send(frames.Rejected(request=job.request, code=refused.code, message=str(refused)))

    def _send_snapshot(self, link: GatewayLink) -> None:
        # What is kept back is relative to what other links know; this one knows nothing yet.
        self._news.flush()
        link.send_bytes(self._news.snapshot(self._engine.kv_snapshot()))

    def _send_reports(self, link: GatewayLink) -> None:
        for report in self.jobs.due_reports(link.gateway, time.monotonic()):
            link.send(report)

    async def _prove(self, *, measure: bool = False) -> float:
        """Seconds that one token took; raises `ModelError` when none came."""
        if not self._engine.facts.probed:
            return 0.0
        self._probe = Probe(self._engine.facts)
        try:
            token_s = await self._probe.run(self._engine)
            if measure:
                self._path = await self._probe.measure(self._engine, token_s)
            return token_s
        finally:
            self._probe = None

    async def _probe_when_idle(self) -> None:
        """An engine can die silently, which only the next jobs would notice.

        One failure may be a busy moment of a server behind the engine; several in a row are not.
        """
        interval_s, failures = self._options.probe_interval_s, 0
        while not self.draining:
            await asyncio.sleep(interval_s)
            if self.jobs.jobs_count or time.monotonic() - self._worked_s < interval_s:
                continue
            try:
                await self._prove()
                failures = 0
            except ModelError as error:
                failures += 1
                log.warning("idle probe failed %d/%d: %s", failures, PROBE_FAILURES_MAX, error)
                if failures == PROBE_FAILURES_MAX:
                    self.on_death(error)
                    return

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            now = time.monotonic()
            self.links.look(now)
            for gateway in self.links.gone(self.jobs.reporting(), now):
                log.warning("gateway is dead instance=%s: others get its reports", gateway)
                self.jobs.bequeath(gateway)
            offers = offers_of(self._engine.facts, self._assets.digest)
            for link in self.links.connected():
                self._send_reports(link)
                if self._told[link.url] != offers:
                    self._told[link.url] = offers
                    link.send(offers)

    async def _share(self) -> None:
        """Redistribute credits, and report long steps and the load of other gateways."""
        busy = False
        while True:
            await asyncio.sleep(LOAD_INTERVAL_S)
            now = time.monotonic()
            self._credits.share(self.jobs.held(), now, self._tell_credits)
            links = self.links.connected()
            busy, was_busy = self.jobs.jobs_count > 0, busy
            if processing := self._pulse.look(now):
                self._tell_load(links, now, processing)
            elif len(links) > 1 and (busy or was_busy):
                self._tell_load(links, now)

    def _tell_credits(self, url: str, number: int, credits: int) -> None:
        link = self.links.by_url.get(url)
        if link is not None:
            link.send(frames.Credits(number=number, credits=credits))

    def _tell_load(
        self, links: Sequence[GatewayLink], now: float, processing: Sequence[frames.Processing] = ()
    ) -> None:
        load = self._load.between_steps(processing)
        for link in links:
            if load is not None and (processing or link.load_due(now)):
                link.send_step(self._load.for_gateway(load, link.url), now)

    def _dial(self, url: str) -> GatewayLink:
        link = GatewayLink(url, self._options.credential, self)
        if self._serving:
            self._run(self._keep(link))
        return link

    def _drop(self, link: GatewayLink) -> None:
        self._run(link.hang_up())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Without credits or reports the node would still look healthy.
            log.error("a task of the node failed", exc_info=error)
            self._stop(Stop.LINK_FAILED)

    async def _keep(self, link: GatewayLink) -> None:
        try:
            await link.run()
        except Fenced as error:
            log.error("fenced url=%s reason=%r", link.url, str(error))
            self._stop(Stop.FENCED)
        except Exception:  # Process edge: a dead link task must end the node, not leave it silent.
            log.exception("link failed url=%s", link.url)
            self._stop(Stop.LINK_FAILED)

    def _stop(self, reason: Stop) -> None:
        if not self.stopped.done():
            self.stopped.set_result(reason)
