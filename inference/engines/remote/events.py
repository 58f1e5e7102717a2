"""Server-sent events to typed chunks, within bounds; fields that a server omits stay empty."""

from typing import Any

import msgspec

from inference.contract.frames import LOGPROBS_MAX, OUTPUT_TEXT_CHARS_MAX
from inference.contract.parts import TokenLogprob, ToolCallDelta

# A chunk of this size cannot hold more characters than an output may.
EVENT_BYTES_MAX = OUTPUT_TEXT_CHARS_MAX
DONE = b"[DONE]"
TOKEN_ID = "token_id:"


class UpstreamBroken(Exception):
    """The server's answer cannot be read, or ended too soon."""


class EventReader:
    """Bytes of a stream in, the data of whole events out."""

    __slots__ = ("_data", "_line")

    def __init__(self) -> None:
        self._line = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Data of the events that these bytes complete; raises `UpstreamBroken` past the bound."""
        *lines, self._line = (self._line + data).split(b"\n")
        events = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        if len(self._line) + sum(map(len, self._data)) > EVENT_BYTES_MAX:
            raise UpstreamBroken(f"an event of more than {EVENT_BYTES_MAX} bytes")
        return events


class Function(msgspec.Struct):
    """Name and arguments of a tool call, or the next fragment of them."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: Function = msgspec.field(default_factory=Function)


class Delta(msgspec.Struct):
    """What a chat adds. Servers call what the model thinks by either name, or by both at once."""

    content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    reasoning_content: Any = None
    reasoning: Any = None


class Score(msgspec.Struct):
    """A token, as `token_id:` and its number, and the likeliest ones in its place."""

    token: str
    logprob: float
    top_logprobs: list["Score"] = msgspec.field(default_factory=list)

    @property
    def pair(self) -> tuple[int, float]:
        """Raises `UpstreamBroken`."""
        number = self.token.removeprefix(TOKEN_ID)
        if not number.isdecimal():
            raise UpstreamBroken("log probabilities without token ids")
        return int(number), self.logprob


class Scores(msgspec.Struct):
    """Log probabilities: `content` in chats, lists of equal length in text completions."""

    content: list[Score] | None = None
    tokens: list[str] = msgspec.field(default_factory=list)
    token_logprobs: list[float] = msgspec.field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = msgspec.field(default_factory=list)

    @property
    def all(self) -> list[Score]:
        if self.content is not None:
            return self.content
        rows = zip(self.tokens, self.token_logprobs, self.top_logprobs, strict=False)
        return [
            Score(token, logprob, [Score(*each) for each in (top or {}).items()])
            for token, logprob, top in rows
        ]


class Choice(msgspec.Struct):
    """One choice of a chunk: `delta` in chats, `text` in text completions."""

    index: int = 0
    delta: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: Any = None

    @property
    def added_logprobs(self) -> list[TokenLogprob] | None:
        """Of the tokens in this chunk, without that which ends the choice, since it has no text.

        Raises `UpstreamBroken`.
        """
        if self.logprobs is None:
            return None
        try:
            scores = msgspec.convert(self.logprobs, Scores).all
        except msgspec.ValidationError as error:
            raise UpstreamBroken(f"log probabilities that cannot be read: {error}") from error
        if self.finish_reason == "stop" and not isinstance(self.stop_reason, str):
            scores = scores[:-1]
        return [
            TokenLogprob(
                token=score.pair[0],
                logprob=score.logprob,
                top=[each.pair for each in score.top_logprobs[:LOGPROBS_MAX]],
            )
            for score in scores
        ]

    @property
    def added_text(self) -> str:
        """The text of this chunk, in whichever field it came."""
        delta = self.delta or Delta()
        return (self.text or "") + (delta.content or "") + (delta.refusal or "")

    @property
    def added_reasoning(self) -> str:
        """What the model thought in this chunk; no standard says that it must be text."""
        delta = self.delta or Delta()
        said = delta.reasoning_content or delta.reasoning
        return said if isinstance(said, str) else ""

    @property
    def added_calls(self) -> list[ToolCallDelta] | None:
        calls = self.delta.tool_calls if self.delta else None
        return [
            ToolCallDelta(
                index=call.index,
                id=call.id,
                name=call.function.name,
                arguments=call.function.arguments or "",
            )
            for call in calls or ()
        ] or None


class Details(msgspec.Struct):
    """How much of a prompt came from the server's own cache, or of an answer is reasoning."""

    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class ReportedUsage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None

    @property
    def cached_tokens(self) -> int:
        """Cached prompt tokens, 0 where the server does not say."""
        details = self.prompt_tokens_details
        return (details.cached_tokens if details else None) or 0

    @property
    def reasoning_tokens(self) -> int | None:
        """Reasoning tokens of the answer, None where the server does not say."""
        details = self.completion_tokens_details
        return details.reasoning_tokens if details else None


class Chunk(msgspec.Struct):
    """One event of a stream; the last one may have only `usage`."""

    choices: list[Choice] = msgspec.field(default_factory=list)
    usage: ReportedUsage | None = None
    error: Any = None


class HandedOver(msgspec.Struct):
    """An answer in one piece whose tokens nobody needs: where its prompt's keys and values are."""

    usage: ReportedUsage
    kv_transfer_params: dict[str, Any]


def read_handed_over(data: bytes) -> HandedOver:
    """Raises `UpstreamBroken`."""
    try:
        return msgspec.json.decode(data, type=HandedOver)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamBroken(f"it hands nothing over: {error}") from error


_decoder = msgspec.json.Decoder(Chunk)


def read_chunk(data: bytes) -> Chunk | None:
    """Decode the data of one event; None for the last. Raises `UpstreamBroken`."""
    if data == DONE:
        return None
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamBroken(f"a chunk that cannot be read: {error}") from error
