"""The four-way comparison: the same task asked in four ways of this deployment, timed by a client.

Each way is bounded in requests and in seconds. A first request of each is not counted, so that no
way pays for another's cold start; the last way's first one fills the cache that it is about.
"""

import asyncio
import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import msgspec

from controlplane.insights.load.samples import OK, LoadSample
from controlplane.insights.load.wire import LoadClient
from controlplane.kernel.clock import monotonic_s

# Two full rounds of the widest way.
REQUESTS_DEFAULT, REQUESTS_MAX = 16, 100
SECONDS_DEFAULT, SECONDS_MAX = 60.0, 600.0
OUTPUT_DEFAULT, OUTPUT_MAX = 48, 1_024
WORDS_DEFAULT, WORDS_MAX = 320, 4_000
AT_ONCE = 8
SHORTER = 4
TOLD_MAX = 3
THOUSAND = 1_000
US_PER_S = 1_000_000
RULES = (
    "You tell stories to the guests of a hotel. Be kind, tell them at length, and never invent a "
    "price. What the passages say of the house is true. "
)
# Long stories, so that all models stop at the same length: times of unequal answers say nothing.
SUBJECTS = ("a dog", "a horse", "a robot", "a letter", "a boat", "a miller", "the harbour")
PASSAGES = (
    "Breakfast is served from seven to ten in the room with the blue door.",
    "The pool on the roof is open in summer and heated in spring.",
    "Dogs are welcome on the ground floor and may not enter the kitchen.",
    "A late departure until two costs nothing when the house is not full.",
    "Bicycles stand in the yard; the key for them is at the reception.",
    "The last bus to the harbour leaves at half past eleven.",
)


class Refused(Exception):
    """The gateway answered with an error, or not at all."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared. `words` is the length of the passages, `requests` and `seconds` bounds of
    each way.
    """

    large: str
    small: str
    requests: int = REQUESTS_DEFAULT
    seconds: float = SECONDS_DEFAULT
    output_tokens: int = OUTPUT_DEFAULT
    words: int = WORDS_DEFAULT


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """One way to ask. With `shared` what stays the same comes first; else a new id does."""

    name: str
    label: str
    what: str
    small: bool = False
    streamed: bool = False
    shared: bool = False
    shorter: bool = False
    keeps_open: bool = True
    at_once: int = 1


MANNERS = (
    Manner(
        name="baseline",
        label="Baseline",
        what="large model, whole prompt after a unique id, not streamed, sequential, a new "
        "connection each",
        keeps_open=False,
    ),
    Manner(
        name="gateway", label="Gateway tuning only", what="the same over one persistent connection"
    ),
    Manner(
        name="streaming",
        label="Streaming, shorter prompt",
        what="streamed, and a quarter of the passages",
        streamed=True,
        shorter=True,
    ),
    Manner(
        name="whole",
        label="KV cache, batching, right-sized model",
        what=f"small model, stable prefix first so that it is cached, streamed, {AT_ONCE} "
        "concurrent",
        small=True,
        streamed=True,
        shared=True,
        at_once=AT_ONCE,
    ),
)


class WayResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one way took; times in microseconds. `model` was asked for, `served` are those that
    answered, empty for runs that did not note them.

    `under_way` is how many requests were on their way on the average, None of runs that did not
    count it; `card_nano` the time of the cards that it kept, None where their price is not known.
    """

    name: str
    label: str
    what: str
    model: str
    requests: int
    failed: int
    seconds: float
    latency_p50_us: int
    latency_p95_us: int
    ttft_p50_us: int
    ttft_p95_us: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    charged_nano: int
    card_nano: int | None
    told: tuple[str, ...] = ()
    under_way: float | None = None
    served: tuple[str, ...] = ()

    @property
    def models(self) -> str:
        served = ", ".join(self.served) or self.model
        return served if served == self.model else f"{served} (asked for {self.model})"

    @property
    def tokens_each(self) -> float:
        return self.output_tokens / self.requests

    @property
    def per_thousand_nano(self) -> int | None:
        """Charged for a thousand tokens of output; None without any."""
        return self.charged_nano * THOUSAND // self.output_tokens if self.output_tokens else None

    @property
    def cards_per_thousand_nano(self) -> int | None:
        """Cost of the cards for a thousand tokens of output."""
        if self.card_nano is None or not self.output_tokens:
            return None
        return self.card_nano * THOUSAND // self.output_tokens


@dataclass(frozen=True)
class Cards:
    """What one second of a model's nodes costs, and how many are ready."""

    nano_per_s: int
    nodes: int


def compare(
    setup: Setup,
    client: LoadClient,
    cards: Mapping[str, Cards | None],
    *,
    done: Callable[[WayResult], None],
) -> list[WayResult]:
    """Ask in all four ways, one after another; `done` learns of each. Raises Refused where a way
    had no answer at all.
    """
    found = []
    for manner in MANNERS:
        outcome = asyncio.run(_ask_all(setup, manner, client, cards))
        done(outcome)
        found.append(outcome)
    return found


def body_of(setup: Setup, manner: Manner, number: int) -> dict[str, Any]:
    """One request; `number` makes its question another one."""
    words = setup.words // SHORTER if manner.shorter else setup.words
    rules = RULES + "\n" + " ".join(itertools.islice(_words(), words))
    if not manner.shared:
        rules = f"Request {uuid.uuid4()}. {rules}"
    question = f"Story {number}: tell a long story about {SUBJECTS[number % len(SUBJECTS)]}."
    body: dict[str, Any] = {
        "model": setup.small if manner.small else setup.large,
        "messages": [{"role": "system", "content": rules}, {"role": "user", "content": question}],
        "max_tokens": setup.output_tokens,
        "temperature": 0,
    }
    if manner.streamed:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _words() -> Iterator[str]:
    for number in itertools.count(1):
        yield f"[{number}]"
        yield from PASSAGES[number % len(PASSAGES)].split()


async def _ask_all(
    setup: Setup, manner: Manner, client: LoadClient, cards: Mapping[str, Cards | None]
) -> WayResult:
    numbers = iter(range(1, setup.requests + 1))
    samples: list[LoadSample] = []

    async def ask(number: int) -> LoadSample:
        sample = LoadSample(manner.name, monotonic_s())
        await client.ask(body_of(setup, manner, number), sample)
        if not manner.keeps_open:
            client.close()
        return sample

    async def stream() -> None:
        while monotonic_s() - began < setup.seconds:
            number = next(numbers, None)
            if number is None:
                break
            samples.append(await ask(number))

    try:
        if (first := await ask(0)).code != OK:
            raise Refused(_told(first))
        began = monotonic_s()
        async with asyncio.TaskGroup() as group:
            for _ in range(manner.at_once):
                group.create_task(stream())
    finally:
        client.close()
    failures = [_told(each) for each in samples if each.code != OK]
    if len(failures) == len(samples):
        raise Refused(failures[0] if failures else f"no answer within {setup.seconds:g} s")
    answers = [each for each in samples if each.code == OK]
    return _outcome(setup, manner, answers, failures, (monotonic_s() - began, cards))


def _told(sample: LoadSample) -> str:
    return f"{sample.code}: {sample.message}" if sample.message else sample.code


def _outcome(
    setup: Setup,
    manner: Manner,
    answers: list[LoadSample],
    failures: list[str],
    took: tuple[float, Mapping[str, Cards | None]],
) -> WayResult:
    seconds, known = took
    served = sorted({one.model for one in answers})
    cards = known.get(served[0]) if len(served) == 1 else None
    latencies = sorted(round(one.total_s * US_PER_S) for one in answers)
    # Without a stream the first token is seen when the last is.
    firsts = sorted(
        round((one.ttft_s if one.events else one.total_s) * US_PER_S) for one in answers
    )
    card_nano = None
    if cards is not None:
        card_nano = round(seconds * cards.nano_per_s * min(manner.at_once, max(1, cards.nodes)))
    return WayResult(
        name=manner.name,
        label=manner.label,
        what=manner.what,
        model=setup.small if manner.small else setup.large,
        requests=len(answers),
        failed=len(failures),
        seconds=round(seconds, 3),
        under_way=round(sum(latencies) / (seconds * US_PER_S), 2),
        latency_p50_us=rank(latencies, 0.5),
        latency_p95_us=rank(latencies, 0.95),
        ttft_p50_us=rank(firsts, 0.5),
        ttft_p95_us=rank(firsts, 0.95),
        prompt_tokens=sum(one.prompt_tokens for one in answers),
        cached_tokens=sum(one.cached_tokens for one in answers),
        output_tokens=sum(one.output_tokens for one in answers),
        charged_nano=sum(one.nano for one in answers),
        card_nano=card_nano,
        told=tuple(sorted(set(failures))[:TOLD_MAX]),
        served=tuple(served),
    )


def rank(ordered: list[int], share: float) -> int:
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
