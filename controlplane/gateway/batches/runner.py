"""Runs lines of batches where nodes are idle, each through the pipeline as any other request."""

import asyncio
import copy
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import msgspec

from controlplane.gateway.app_state import AppState
from controlplane.gateway.batches.http import new_id
from controlplane.gateway.call import Call
from controlplane.gateway.http.shapes import SHAPES
from controlplane.gateway.nodes.models import ServedModel
from controlplane.gateway.pipeline import serve
from controlplane.gateway.ports import FinishedRequest, Keys, LedgerAway
from controlplane.gateway.ports_contents import BatchQuestion
from controlplane.gateway.progress import Trail
from controlplane.gateway.refusal import MISDIRECTED, UNAVAILABLE, Refusal, bad_key, internal_error
from controlplane.gateway.snapshot import KeyRecord
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.ids import new_request_id, public_request
from controlplane.kernel.rules import PRIORITY_LOW
from inference.contract.capabilities import BACKGROUND

OK, LIMITED = 200, 429
GONE = "The API key that this batch was created with no longer exists."


class ClaimedLine(msgspec.Struct):
    """A line that is this gateway's to run; `tries` counts its runs, this one among them.

    `charged`: the run before was, though its answer was lost. This one is not, nor is it recorded:
    records and ledger tell of the same tokens.
    """

    batch: str
    number: int
    request: UUID
    custom_id: str
    model: str
    body: str
    tries: int
    key_id: str
    endpoint: str
    charged: bool

    def call(self, deadline_s: int) -> Call:
        """Its request is the one that it was claimed with, by which it is charged."""
        call = Call([(b"authorization", b"Bearer batch")])
        call.request, call.deadline_s = self.request.bytes, deadline_s
        call.priority = BACKGROUND
        return call


class LineKeys:
    """The key of a batch as it is now, at the lowest priority; from where was checked before."""

    def __init__(self, keys: Keys, key_id: str) -> None:
        self.snapshot = keys.snapshot
        self.recheck = keys.recheck
        self._key_id = key_id

    def check(self, presented: str) -> KeyRecord:
        key = self.recheck(self._key_id)
        if key is None:
            raise bad_key(GONE)
        return msgspec.structs.replace(key, networks=(), priority=PRIORITY_LOW, batch=True)


class NoRecorder:
    """Of runs that nobody pays for."""

    def record(self, record: FinishedRequest) -> None:
        """The ledger has the run before."""


class LineBody:
    """A body that is all here."""

    more_body = False
    on_gone: Callable[[], None] | None = None

    def __init__(self, line: ClaimedLine) -> None:
        self.path = line.endpoint
        self._body = line.body.encode()

    def take(self) -> bytes:
        return self._body

    async def more(self) -> bytes:
        return self._body


class LineOut:
    """Keeps the answer; `temporary`: another try may have another."""

    started = paused = temporary = False
    status = 0
    body = b"null"

    async def drained(self) -> None:
        """Nobody reads."""

    def _never(self, *_: object) -> None:
        raise AssertionError("no line streams, is replayed or runs in the background")

    event = fail = replay = detach = _never

    def refuse(self, refusal: Refusal, trail: Trail) -> None:
        self.status, self.body = refusal.status, msgspec.json.encode(refusal.body)
        limited = refusal.status == LIMITED and refusal.code != "insufficient_quota"
        self.temporary = limited or refusal.status in (UNAVAILABLE, MISDIRECTED)

    def end(self, data: bytes, trail: Trail) -> None:
        self.status, self.body = OK, data

    def result(self, line: ClaimedLine) -> str:
        """A line of the output file, or of the error file."""
        told = {
            "id": f"batch_req_{line.batch.removeprefix('batch_')}_{line.number}",
            "custom_id": line.custom_id,
            "response": {
                "status_code": self.status,
                "request_id": public_request(line.request.bytes),
                "body": msgspec.Raw(self.body),
            },
            "error": None,
        }
        return msgspec.json.encode(told).decode()


BUSY_S, REST_S, AGAIN_S = 0.5, 2.0, 0.5
# Lines that end together are followed together.
GATHER_S = 0.02
RUNNING_MAX = 64
# Of a file that is read, and of lines that are cut off at once.
BOUNDS = {"lines_max": 50_000, "errors_max": 100, "rows_max": 5_000}
# Beside requests of others, batches take this part of their share. Others are there for so long
# after the last of them came.
BESIDE = 1 / 4
OTHERS_S = 1.0
RETRY_S_MAX, DOUBLINGS_MAX = 60, 6

log = logging.getLogger(__name__)


class BatchesTurn(msgspec.Struct):
    """What there is to do."""

    models: list[str]
    reading: bool


_turn = msgspec.json.Decoder(BatchesTurn)
_claimed = msgspec.json.Decoder(list[ClaimedLine])


class LineStarts:
    """When lines may begin: `per_s` of them while requests of others come, so that these hardly
    ever meet one, else as many as find room. `served` tells how many have come.
    """

    def __init__(self, served: Callable[[], int], per_s: float) -> None:
        self._served, self._per_s = served, per_s
        self._seen = served()
        self._others_s = self._due_s = 0.0

    def others_came(self) -> bool:
        """Whether somebody asked this gateway a moment ago."""
        if (served := self._served()) != self._seen:
            self._seen = served
            self.note_others()
        return monotonic_s() < self._others_s + OTHERS_S

    def note_others(self) -> None:
        """Somebody asks now, here or another gateway of the same nodes."""
        self._others_s = monotonic_s()

    def began(self, lines: int) -> None:
        self._due_s = monotonic_s() + lines / self._per_s

    async def wait(self) -> None:
        """Until the next may begin."""
        if self.others_came():
            await asyncio.sleep(max(0.0, self._due_s - monotonic_s()))


class BatchRunner:
    """One gateway's part in all batches: at most `share` of what its nodes take at once, begun at
    `per_s` a second beside requests of others.

    `lives` tells whether others count this gateway, known to them as `me`, among the living: where
    they may not, its lines are theirs.
    """

    def __init__(
        self, state: AppState, *, me: str, share: float, per_s: float, lives: Callable[[], bool]
    ) -> None:
        self._state, self._me, self._share, self._lives = state, me, share, lives
        self._starts = LineStarts(lambda: state.served, per_s)
        self._running: dict[asyncio.Task[None], ClaimedLine] = {}
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="batches")

    async def close(self, seconds: float) -> None:
        """Take no more lines, let those that run end, and leave the rest to others."""
        self._task.cancel()
        if self._running:
            await asyncio.wait(list(self._running), timeout=seconds)
        for task in self._running:
            task.cancel()
        await asyncio.gather(self._task, *self._running, return_exceptions=True)

    async def _ask(self, question: BatchQuestion, **facts: object) -> bytes:
        return await self._state.batches.ask(question, me=self._me, **facts)

    async def _run(self) -> None:
        while True:
            busy = False
            self._wake.clear()
            try:
                if self._lives():
                    busy = await self._pass()
                else:
                    for task in self._running:
                        task.cancel()
            except LedgerAway as error:
                log.warning("batches are not looked after: %r", error.__cause__)
            except Exception:  # Process edge: a bug must not end all batches of this gateway.
                log.exception("batches were not looked after")
            with suppress(TimeoutError):
                async with asyncio.timeout(BUSY_S if busy else REST_S):
                    await self._wake.wait()
                await asyncio.sleep(GATHER_S)
            await self._starts.wait()

    async def _pass(self) -> bool:
        """Look what there is to do and begin it; whether there is anything."""
        ids = {kind: new_id("file") for kind in ("output", "error")}
        facts = {"kept_s": self._state.batch_files_s, **BOUNDS, **ids}
        running = [line.request for line in self._running.values()]
        turn = _turn.decode(await self._ask("turn", running=running, **facts))
        if turn.reading:
            self._wake.set()
        wanted = {name: self._slots(name) for name in turn.models}
        slots = [{"model": name, "slots": count} for name, count in wanted.items() if count]
        if slots:
            fresh = [UUID(bytes=new_request_id()) for _ in range(sum(wanted.values()))]
            lines = _claimed.decode(await self._ask("claim", slots=slots, requests=fresh))
            self._starts.began(len(lines))
            for line in lines:
                self._running[asyncio.create_task(self._run_line(line))] = line
        return bool(turn.models)

    def _slots(self, name: str) -> int:
        """How many lines of a model may begin now.

        A name that no node serves may be a rule's, whose lines go anywhere: it has what is least.
        """
        fleet = self._state.fleet.models()
        ours = Counter(line.model for line in self._running.values())
        served = [fleet[name]] if name in fleet else list(fleet.values())
        free = min([self._idle(each) for each in served], default=0) - ours[name]
        most = 1 if self._starts.others_came() else RUNNING_MAX
        return max(0, min(free, most, RUNNING_MAX - len(self._running)))

    def _idle(self, served: ServedModel) -> int:
        """How many lines may run on its nodes; none while anybody waits for one of their pools."""
        waiting = self._state.waiting.pools()
        links = [link for link in served.nodes if link.takes_jobs]
        if any(waiting[link.hello.pool] for link in links):
            return 0
        accounts = [link.account for link in links]
        share = self._share * sum(one.credits for one in accounts)
        others = sum(one.active + one.others_active for one in accounts) > len(self._running)
        if others:
            self._starts.note_others()
        most = max(1, int(share * BESIDE if others else share))
        # The last free place is left to others, where there are any.
        return most if sum(one.credits_left for one in accounts) > others else 0

    async def _run_line(self, line: ClaimedLine) -> None:
        out, state = LineOut(), copy.copy(self._state)
        state.keys = LineKeys(state.keys, line.key_id)
        if line.charged:
            state.recorder = NoRecorder()
        call = line.call(state.request_deadline_s)
        try:
            try:
                await serve(call, LineBody(line), SHAPES[line.endpoint], state, out)
            except Exception:  # Process edge: a bug is the line's answer, and is logged.
                log.exception("line %s of %s failed", line.number, line.batch)
                out.refuse(internal_error("internal_error", "Internal server error."), Trail())
            await self._tell(line, out)
        finally:
            self._running = {task: each for task, each in self._running.items() if each != line}
            self._wake.set()

    async def _tell(self, line: ClaimedLine, out: LineOut) -> None:
        """Write the result, or that it is to be tried again, for as long as the line is ours."""
        facts: dict[str, object] = {"ok": out.status == OK, "result": out.result(line)}
        if out.temporary:
            facts = {"after_s": min(RETRY_S_MAX, 2 ** min(line.tries, DOUBLINGS_MAX))}
        while True:
            with suppress(LedgerAway):
                named = {"batch": line.batch, "number": line.number, "request": line.request}
                await self._ask("done", **named, **facts)
                return
            await asyncio.sleep(AGAIN_S)
