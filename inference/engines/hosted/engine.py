"""One node that serves models of hosted providers: each job goes to the key with the most room.

Every model at every key of its connections is a remote engine of its own, made when it is first
needed. A job that one refuses before its first output goes to another.
"""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from inference.contract.capabilities import Capability
from inference.contract.frames import Job, KvEvents, Output, Processing, Step
from inference.engines.base import NO_STEP, EngineEvents, EngineFacts
from inference.engines.hosted.configuration import (
    LINE_BYTES_MAX,
    SILENCE_S_MAX,
    Connection,
    HostedConfiguration,
    read_configuration,
)
from inference.engines.hosted.limits import KeyLimits
from inference.engines.remote.engine import MILLISECONDS_PER_S, RemoteEngine
from inference.engines.remote.errors import HTTP_BAD_REQUEST, ServerRefused
from inference.engines.remote.kinds import KINDS
from inference.errors import JobRefused, ModelError

CREDITS = 256
# How many keys a job is tried at.
ATTEMPTS_MAX = 3
FIRST_LINE_S_MAX = 30.0
Place = tuple[str, str, str]

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class HostedOptions:
    """`credits` are jobs at once over all connections. Raises ValueError."""

    credits: int = CREDITS

    def __post_init__(self) -> None:
        if self.credits < 1:
            raise ValueError("--credits: must be at least 1")


async def lines_of_input() -> AsyncIterator[bytes]:
    """Lines of standard input as they come."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    while line := await reader.readline():
        yield line


class Upstream(RemoteEngine):
    """One model at one key; it asks the provider nothing but what jobs ask."""

    def __init__(self, hosted: "HostedEngine", connection: Connection, place: Place) -> None:
        key = next(each for each in connection.keys if each.id == place[1])
        model = next(each for each in connection.models if each.name == place[2])
        super().__init__(connection.options(model, key, hosted.facts.credits, hosted.silence_s))
        self.place = place
        self.jobs = 0
        self.made_of = connection, key, model
        self._hosted = hosted
        self._kind = KINDS[connection.kind]
        self.facts = msgspec.structs.replace(
            self.facts,
            engine=connection.kind,
            capabilities=(
                *self._kind.capabilities,
                *([Capability.VISION] if model.vision else ()),
            ),
        )
        self._events = self
        self._connect().told_head = self._learn
        self._spawn(self._beat())

    def submit(self, job: Job) -> None:
        """With no more output than the provider allows."""
        most = self.made_of[2].max_output
        if most and job.sampling.max_tokens > most:
            sampling = msgspec.structs.replace(job.sampling, max_tokens=most)
            job = msgspec.structs.replace(job, sampling=sampling)
        super().submit(job)

    def _learn(self, status: int, headers: Any) -> None:
        now = datetime.now(UTC)
        self._hosted.limits(self.place).learn(status, headers, time.monotonic(), now)

    # `EngineEvents`: its own, handed on with what the node is to know.

    def on_step(self, step: Step) -> None:
        self._hosted.stepped(step.outputs, step.processing)

    def on_kv(self, events: KvEvents) -> None:
        """There are none."""

    def on_refused(self, request: bytes, refused: JobRefused) -> None:
        self._hosted.refused(self, request, refused)

    def on_death(self, error: BaseException) -> None:
        self._hosted.died(error)


class _Attempt:
    """A job under way: where it is, and where it was."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.began_s = time.monotonic()
        self.open = job.choices
        self.tried: list[Place] = []
        self.at: Upstream | None = None


class HostedEngine:
    """Reads its configuration when it starts, and whenever it changes. Raises `ModelError` at
    `start` where there is none.
    """

    def __init__(
        self,
        options: HostedOptions,
        folder: None = None,
        lines: Callable[[], AsyncIterator[bytes]] = lines_of_input,
    ) -> None:
        self.facts = EngineFacts(
            engine="hosted",
            device="remote",
            dtype="remote",
            model="hosted",
            context_window=1,
            credits=options.credits,
            capabilities=(),
            silence_s=SILENCE_S_MAX,
            probed=False,
        )
        self._lines = lines()
        self._configuration = HostedConfiguration(())
        self._limits: dict[Place, KeyLimits] = {}
        self._upstreams: dict[Place, Upstream] = {}
        self._attempts: dict[bytes, _Attempt] = {}
        self._events: EngineEvents | None = None
        self._following: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def start(self, events: EngineEvents) -> None:
        """Wait for the first configuration; raises `ModelError`."""
        self._events = events
        try:
            async with asyncio.timeout(FIRST_LINE_S_MAX):
                line = await anext(self._lines)
            self._configure(read_configuration(line, credits=self.facts.credits))
            if not self.facts.models:
                raise ModelError("standard input: connections: none has a key and a model")
        except (TimeoutError, StopAsyncIteration) as error:
            raise ModelError("standard input: no configuration came") from error
        except ValueError as error:
            raise ModelError(f"standard input: {error}") from error
        self._following = asyncio.create_task(self._follow())

    def submit(self, job: Job) -> None:
        """To the key with the most room; raises `JobRefused`."""
        if job.request in self._attempts:
            raise JobRefused("bad_job", "request: this id is already being served")
        if len(self._attempts) >= self.facts.credits:
            raise JobRefused("full", f"all {self.facts.credits} credits are in use")
        attempt = _Attempt(job)
        self._try(attempt)
        self._attempts[job.request] = attempt

    def cancel(self, request: bytes) -> None:
        """Idempotent; unknown requests are ignored."""
        attempt = self._attempts.get(request)
        if attempt is not None and attempt.at is not None:
            attempt.at.cancel(request)

    def kv_snapshot(self) -> KvEvents:
        return KvEvents(seq=0, stored=b"", removed=b"", snapshot=True, unknown=True)

    def computing(self) -> None:
        """Providers compute."""

    async def close(self) -> None:
        """End what runs as cancelled."""
        if self._following is not None:
            self._following.cancel()
        await asyncio.gather(*(each.close() for each in self._upstreams.values()))
        await asyncio.gather(*self._closing)

    @property
    def silence_s(self) -> tuple[float, float]:
        """Floor and ceiling of how long a provider may be silent."""
        return self._configuration.silence_s

    def limits(self, place: Place) -> KeyLimits:
        """Of a model at a key: providers count by both."""
        return self._limits.setdefault(place, KeyLimits())

    # What upstreams call.

    def stepped(self, outputs: list[Output], processing: list[Processing]) -> None:
        for output in outputs:
            attempt = self._attempts.get(output.request)
            if attempt is not None and output.finish is not None:
                attempt.open -= 1
                if not attempt.open:
                    self._leave(attempt)
                    del self._attempts[output.request]
        if self._events is not None:
            running = len(self._attempts)
            step = msgspec.structs.replace(
                NO_STEP, outputs=outputs, processing=processing, running=running
            )
            self._events.on_step(step)

    def refused(self, upstream: Upstream, request: bytes, refused: JobRefused) -> None:
        """On to another key where that may do, else back to the gateway."""
        attempt = self._attempts[request]
        self._leave(attempt)
        if isinstance(refused, ServerRefused) and self.limits(upstream.place).refused:
            connection, key, _ = upstream.made_of
            log.error("connection=%s key=%s: the provider refuses it", connection.name, key.id)
        # Where no answer came the provider may have computed one, and charge for it.
        answered = isinstance(refused, ServerRefused)
        if answered and refused.code == "full" and len(attempt.tried) < ATTEMPTS_MAX:
            try:
                self._try(attempt)
                return
            except JobRefused as other:
                refused = refused if other.code == "full" else other
        del self._attempts[request]
        if self._events is not None:
            self._events.on_refused(request, refused)

    def died(self, error: BaseException) -> None:
        if self._events is not None:
            self._events.on_death(error)

    def _leave(self, attempt: _Attempt) -> None:
        if attempt.at is not None:
            attempt.at.jobs -= 1
            if not attempt.at.jobs and self._upstreams.get(attempt.at.place) is not attempt.at:
                self._close_later(attempt.at)
            attempt.at = None

    def _try(self, attempt: _Attempt) -> None:
        upstream = self._choose(attempt)
        attempt.tried.append(upstream.place)
        spent_ms = int((time.monotonic() - attempt.began_s) * MILLISECONDS_PER_S)
        left_ms = max(1, attempt.job.deadline_ms - spent_ms)
        try:
            upstream.submit(msgspec.structs.replace(attempt.job, deadline_ms=left_ms))
        except JobRefused as refused:
            raise _of_client(refused) from refused
        attempt.at = upstream
        upstream.jobs += 1

    def _choose(self, attempt: _Attempt) -> Upstream:
        """The place with the most room, by what is left and what is under way there."""
        now_s, model = time.monotonic(), attempt.job.model
        places = self._places(model)
        if not places:
            raise JobRefused("unknown_model", f"model: no connection serves {model!r}")
        awake = [
            place
            for place in places
            if place not in attempt.tried and not self.limits(place).wait_s(now_s)
        ]
        if not awake:
            soonest = min(self.limits(place).wait_s(now_s) for place in places)
            raise JobRefused("full", f"every key of this model rests, for {soonest:.0f} s at least")

        def room(place: Place) -> tuple[float, int]:
            upstream = self._upstreams.get(place)
            jobs = upstream.jobs if upstream else 0
            return self.limits(place).room(now_s) / (1 + jobs), -jobs

        return self._upstream(max(awake, key=room))

    def _places(self, model: str) -> list[Place]:
        return [
            (connection.name, key.id, model)
            for connection in self._configuration.connections
            if any(each.name == model for each in connection.models)
            for key in connection.keys
        ]

    def _upstream(self, place: Place) -> Upstream:
        if place not in self._upstreams:
            named = {each.name: each for each in self._configuration.connections}
            self._upstreams[place] = Upstream(self, named[place[0]], place)
        return self._upstreams[place]

    async def _follow(self) -> None:
        async for line in self._lines:
            try:
                self._configure(read_configuration(line, credits=self.facts.credits))
            except ValueError as error:
                log.error("a configuration is passed over: %s", error)
        # Nobody is left to take a key back.
        self.died(ModelError("standard input: whoever says what is served is gone"))

    def _configure(self, configuration: HostedConfiguration) -> None:
        """Serve this from now on; what runs ends where it is. Without any model what was offered
        stays so, and is refused: a node without offers cannot be.
        """
        self._configuration = configuration
        named = {each.name: each for each in configuration.connections}
        for place, upstream in list(self._upstreams.items()):
            if upstream.made_of != _made_of(named.get(place[0]), place):
                del self._upstreams[place]
                if not upstream.jobs:
                    self._close_later(upstream)
        kept = {place for model in configuration.windows for place in self._places(model)}
        self._limits = {place: each for place, each in self._limits.items() if place in kept}
        kinds = [KINDS[each.kind] for each in configuration.connections if each.keys]
        able = {each for kind in kinds for each in kind.capabilities}
        if any(each.vision for one in configuration.connections for each in one.models):
            able.add(Capability.VISION)
        if configuration.windows:
            self.facts = msgspec.structs.replace(
                self.facts,
                capabilities=tuple(sorted(able)),
                models=tuple(configuration.windows.items()),
            )

    def _close_later(self, upstream: Upstream) -> None:
        task = asyncio.create_task(upstream.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _made_of(connection: Connection | None, place: Place) -> tuple[Any, ...]:
    """What an upstream for a place would be made of now; empty where there is none."""
    if connection is None:
        return ()
    keys = [each for each in connection.keys if each.id == place[1]]
    models = [each for each in connection.models if each.name == place[2]]
    return (connection, keys[0], models[0]) if keys and models else ()


def _of_client(refused: JobRefused) -> JobRefused:
    """What the provider has no word for is the client's to know: others of the model may have."""
    field = str(refused).partition(":")[0]
    if refused.code != "bad_job" or not field.startswith(("sampling.", "pictures", "stop_tokens")):
        return refused
    name = field.removeprefix("sampling.")
    said = f"'{name}' is not supported by this model's provider"
    return ServerRefused("bad_request", said, HTTP_BAD_REQUEST)
