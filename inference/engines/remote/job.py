"""One job on its way through a remote server: its request body, its counts and its outputs."""

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from inference.contract.frames import BYTES_PER_TOKEN, Job, Output, Processing, Timing, Usage
from inference.engines.remote.events import (
    Choice,
    Chunk,
    HandedOver,
    ReportedUsage,
    read_chunk,
)
from inference.engines.remote.kinds import ServerKind
from inference.engines.remote.messages import PATH, messages_body
from inference.engines.remote.ranks import RANK_HEADER
from inference.engines.remote.server import RemoteOptions
from inference.errors import JobRefused

MICROSECONDS_PER_MS = 1000
# A server that ignores its output bound is cut here; longer tokens exist only for runs of spaces.
CHARS_PER_TOKEN_MAX = 128
FINISHES = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "abort": "error",
    "error": "error",
}
# Our names for sampling are the API's; a field is sent where it asks for something.
SAMPLING = {
    "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "frequency_penalty": 0.0,
    "presence_penalty": 0.0, "seed": None, "n": 1, "ignore_eos": False, "min_tokens": 0,
    "repetition_penalty": 1.0,
}  # fmt: skip


# What vLLM's connectors are asked by.
HANDS_OVER = {
    "do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None,
    "remote_block_ids": None, "remote_host": None, "remote_port": None,
}  # fmt: skip


def request_of(job: Job, options: RemoteOptions, kind: ServerKind) -> tuple[str, bytes]:
    """Path and body of the request to the server; raises `JobRefused`."""
    try:
        body: dict[str, Any] = msgspec.json.decode(job.request_json, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JobRefused("bad_job", f"request_json: {error}") from error
    except RecursionError as error:
        raise JobRefused("bad_request", "the request is nested too deeply") from error
    if kind.messages:
        try:
            chat = msgspec.json.decode(job.request_json)
            return PATH, msgspec.json.encode(messages_body(chat, job, options.upstream_model))
        except (LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
            raise JobRefused("bad_job", f"request_json: {type(error).__name__}") from error
    if job.pictures:
        body["messages"] = _with_pictures(job, body.get("messages", b"[]"))
    path = "/completions" if "prompt" in body else "/chat/completions"
    if path == "/chat/completions" and "messages" not in body:
        raise JobRefused("bad_job", "request_json: has neither messages nor prompt")
    sampling = job.sampling
    for field, neutral in SAMPLING.items():
        value = getattr(sampling, field)
        if value != neutral:
            body[field] = value
    if sampling.logit_bias:
        body["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
    if job.stop_tokens:
        body["stop_token_ids"] = job.stop_tokens
    chat = path == "/chat/completions"
    # Only chats know the newer name.
    body[options.output_field if chat else "max_tokens"] = sampling.max_tokens
    body["model"] = options.known_as(job.model)
    body["stream"] = not job.hands_over
    if not job.hands_over:
        # Counts in every chunk where it can, so that a stream which is cut off is charged exactly.
        each = {"continuous_usage_stats": True} if kind.counts else {}
        body["stream_options"] = {"include_usage": True, **each}
    return path, msgspec.json.encode(body | _extras(job, options, kind, chat=chat))


def _extras(job: Job, options: RemoteOptions, kind: ServerKind, *, chat: bool) -> dict[str, Any]:
    """What only some servers take."""
    extras: dict[str, Any] = {}
    if kind.salts:
        extras["cache_salt"] = job.salt.hex()
    if options.priorities and job.priority:
        # vLLM serves low numbers first, we high ones.
        extras["priority"] = -job.priority
    if job.hands_over:
        extras["kv_transfer_params"] = HANDS_OVER
    elif job.transfer is not None:
        extras["kv_transfer_params"] = msgspec.Raw(job.transfer.params)
    if (most := job.sampling.logprobs) is not None:
        extras |= {"logprobs": True, "top_logprobs": most} if chat else {"logprobs": most}
        extras["return_tokens_as_token_ids"] = True
    return extras


def _with_pictures(job: Job, messages: msgspec.Raw | bytes) -> Any:
    """The messages with each picture as a data URL in its place; raises `JobRefused`."""
    turns = msgspec.json.decode(messages)
    contents = [turn["content"] for turn in turns if isinstance(turn["content"], list)]
    places = [part["image_url"] for parts in contents for part in parts if "image_url" in part]
    if len(places) != len(job.pictures):
        raise JobRefused("bad_job", "pictures: are not as many as in request_json")
    for place, picture in zip(places, job.pictures, strict=True):
        place["url"] = f"data:image/jpeg;base64,{base64.b64encode(picture.jpeg).decode()}"
    return turns


class RemoteJob:
    """A job that the server has, from its request to its last output.

    A choice's `finish` is delayed until the server has sent its count, which comes last.
    `counts_choices`: what the server counts on the way is of that choice alone; `rank`: which of
    its caches has most of the prompt. `read` is how an event of its answer is read.
    """

    __slots__ = (
        "_chars", "_completions", "_counts_choices", "_ends", "_first_us", "_heard_us", "_open",
        "_pieces", "_reported", "_thoughts", "job", "rank", "read", "received_us",
    )  # fmt: skip

    def __init__(
        self,
        job: Job,
        received_us: int,
        *,
        counts_choices: bool,
        read: Callable[[bytes], Chunk | None] = read_chunk,
        rank: int | None = None,
    ) -> None:
        self.job, self.read, self.rank = job, read, rank
        self._counts_choices = counts_choices
        self.received_us = self._heard_us = received_us
        self._first_us: int | None = None
        self._open = set(range(job.choices))
        self._ends: dict[int, str] = {}
        self._pieces = [0] * job.choices
        self._thoughts = 0
        self._chars = [0] * job.choices
        self._reported: ReportedUsage | None = None
        self._completions = [0] * job.choices

    @property
    def headers(self) -> dict[str, str]:
        """With which the server continues the job's trace, where the prompt is cached."""
        headers = {"traceparent": self.job.traceparent, "tracestate": self.job.tracestate}
        if self.rank is not None:
            headers[RANK_HEADER] = str(self.rank)
        return {name: value for name, value in headers.items() if value}

    @property
    def delivered(self) -> bool:
        """Whether part of the answer has been sent."""
        return any(self._pieces)

    @property
    def all_ended(self) -> bool:
        """Whether the server has said why each choice ended."""
        return len(self._ends) == self.job.choices

    @property
    def overlong(self) -> bool:
        """Whether the server ignores the output bound."""
        return max(self._chars) > self.job.sampling.max_tokens * CHARS_PER_TOKEN_MAX

    def hear(self, now_us: int) -> None:
        """The server has sent something, if only a keep-alive."""
        self._heard_us = now_us

    def processing(self, now_us: int) -> Processing:
        """What gateways are sent while there is no text to show."""
        silent_ms = (now_us - self._heard_us) // MICROSECONDS_PER_MS
        return Processing(request=self.job.request, silent_ms=silent_ms)

    def take(self, chunk: Chunk, now_us: int) -> list[Output]:
        if chunk.usage is not None:
            self._count(chunk, chunk.usage)
        if chunk.choices and self._first_us is None:
            self._first_us = now_us
        outputs = [self._take_choice(choice, now_us) for choice in chunk.choices]
        return [output for output in outputs if output is not None]

    def end(self, reason: str, now_us: int) -> list[Output]:
        """The last output of every choice; `reason` for those that the server has not ended."""
        usage, timing = self.usage(), self._timing(now_us)
        return [
            Output(
                request=self.job.request,
                choice=choice,
                tokens=[],
                usage=usage,
                timing=timing,
                finish=self._ends.get(choice, reason),
            )
            for choice in range(self.job.choices)
        ]

    def hand_over(self, answer: HandedOver, now_us: int) -> list[Output]:
        """The only output of a job that hands its prompt over."""
        self._reported, self._completions = answer.usage, [answer.usage.completion_tokens]
        self._first_us = now_us
        params = msgspec.json.encode(answer.kv_transfer_params)
        return [
            msgspec.structs.replace(each, transfer=params) for each in self.end("length", now_us)
        ]

    @property
    def tokens(self) -> int:
        """All that it has on the server by now, about."""
        usage = self.usage()
        prompt = usage.prompt_tokens or len(self.job.request_json) // BYTES_PER_TOKEN
        return prompt + usage.completion_tokens

    def usage(self) -> Usage:
        """The server's count, or else an estimate: bytes of the prompt, pieces of the answer.

        A count of zero is ignored: some servers send zeros until the end.
        """
        reported, pieces = self._reported or ReportedUsage(), sum(self._pieces)
        completion_tokens = sum(self._completions)
        # Some say the prompt first, and the answer only once it is whole.
        cut = pieces > 0 and not completion_tokens
        if cut:
            completion_tokens = max(pieces, sum(self._chars) // BYTES_PER_TOKEN)
        if reported.prompt_tokens > 0:
            cached_tokens, transfer = reported.cached_tokens, self.job.transfer
            if transfer is not None:
                # What came from another server was computed there, unless that had it.
                cached_tokens = transfer.cached_tokens
            guessed = self._thoughts and reported.reasoning_tokens is None
            return Usage(
                prompt_tokens=reported.prompt_tokens,
                cached_tokens=min(max(0, cached_tokens), reported.prompt_tokens),
                completion_tokens=completion_tokens,
                source="estimate" if cut else "engine_part" if guessed else "engine",
                reasoning_tokens=self._reasoning_tokens(completion_tokens),
            )
        completion_tokens = max(completion_tokens, pieces)
        # Before the first piece nothing shows that the server has begun.
        seen = sum(each.tokens for each in self.job.pictures)
        guess = len(self.job.request_json) // BYTES_PER_TOKEN + seen
        return Usage(
            prompt_tokens=guess if completion_tokens else 0,
            cached_tokens=0,
            completion_tokens=completion_tokens,
            source="estimate",
            reasoning_tokens=self._reasoning_tokens(completion_tokens),
        )

    def _reasoning_tokens(self, completion_tokens: int) -> int:
        """The server's count, or else their share of the pieces."""
        count = self._reported.reasoning_tokens if self._reported else None
        if count is None:
            count = completion_tokens * self._thoughts // max(1, sum(self._pieces))
        return min(max(0, count), completion_tokens)

    def _count(self, chunk: Chunk, usage: ReportedUsage) -> None:
        self._reported = usage
        count = max(0, usage.completion_tokens)
        places = [each.index for each in chunk.choices if 0 <= each.index < len(self._completions)]
        if not self._counts_choices or not places:
            # The end's count, or one that covers all choices.
            self._completions = [count] + [0] * (len(self._completions) - 1)
            return
        for place in places:
            self._completions[place] = count

    def _take_choice(self, choice: Choice, now_us: int) -> Output | None:
        index = choice.index
        if index not in self._open:
            return None
        if choice.finish_reason:
            self._ends[index] = FINISHES.get(choice.finish_reason, "stop")
            self._open.discard(index)
        text, calls, thought = choice.added_text, choice.added_calls, choice.added_reasoning
        scores = None if self.job.sampling.logprobs is None else choice.added_logprobs
        if not text and not thought and calls is None and not scores:
            return None
        self._pieces[index] = min(self._pieces[index] + 1, self.job.sampling.max_tokens)
        self._thoughts += bool(thought)
        chars = len(text) + len(thought)
        self._chars[index] += chars + sum(len(call.arguments) for call in calls or ())
        return Output(
            request=self.job.request,
            choice=index,
            tokens=[],
            usage=self.usage(),
            timing=self._timing(now_us),
            text=text or None,
            tool_calls=calls,
            reasoning=thought or None,
            logprobs=scores,
        )

    def _timing(self, now_us: int) -> Timing:
        first_us = now_us if self._first_us is None else self._first_us
        return Timing(
            queue_us=0,
            prefill_us=first_us - self.received_us,
            decode_us=now_us - first_us,
            held_us=now_us - self.received_us,
        )
