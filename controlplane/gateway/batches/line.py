"""One line on its way through the pipeline: its call, its key, and where its answer goes."""

from collections.abc import Callable
from uuid import UUID

import msgspec

from controlplane.gateway.call import Call
from controlplane.gateway.ports import FinishedRequest, Keys
from controlplane.gateway.progress import Trail
from controlplane.gateway.refusal import UNAVAILABLE, Refusal, bad_key
from controlplane.gateway.snapshot import KeyRecord
from controlplane.kernel.ids import public_request
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
        self.temporary = limited or refusal.status == UNAVAILABLE

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
