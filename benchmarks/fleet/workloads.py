"""Traffic of the simulator: the same arrivals for every policy, from a seed.

`working_set` is the share of the fleet's KV that live prefixes need. Turns of a conversation are
due at times fixed beforehand; one comes later only if the turn before it has not ended by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.fleet.chains import BLOCK_TOKENS, Request, Segment, Segments

Rng = np.random.Generator

NODE_TOKENS = 400_000
ZIPF = 1.0
CHAT_TURNS = 8
AGENT_STEPS = 15
# A rough time between a request and its last token, for turns due after it.
SERVICE_S = 1.0
# Conversations that are under way at the start come back one by one: their caches are cold.
RAMP_S = 30.0
BURST_EVERY_S = 30.0
BURST_S = 10.0
BURST_NEW_SHARE = 0.4
SWING_S = 60.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """What to make: `rate` requests a second over all nodes, from 0 to `span_s`."""

    nodes: int
    rate: float
    span_s: float
    working_set: float

    @property
    def live_tokens(self) -> float:
        """Tokens of prefixes that are live at once."""
        return self.working_set * self.nodes * NODE_TOKENS


@dataclass(frozen=True, slots=True)
class Talk:
    """Conversations: `head` tokens shared, then turns of `first`/`said` in and `answer` out."""

    turns: int
    heads: int
    head_tokens: int
    first: tuple[int, int]
    said: tuple[int, int]
    answer: tuple[int, int]

    @property
    def mean_tokens(self) -> float:
        """A conversation's own tokens, on average over its turns."""
        turn = (sum(self.said) + sum(self.answer)) / 2
        return sum(self.first) / 2 + turn * self.turns / 2


CHAT = Talk(CHAT_TURNS, 4, 1024, (200, 2000), (50, 500), (50, 350))
AGENT = Talk(AGENT_STEPS, 12, 4096, (200, 1000), (200, 1400), (40, 160))


def shared(rng: Rng, traffic: Traffic) -> list[Request]:
    """Groups by Zipf's law that share a prefix of 2-10k tokens, each with 0.2-1.8k of its own."""
    times = poisson(rng, traffic.rate, 0.0, traffic.span_s)
    return grouped(rng, traffic, times, Segments())


def chat(rng: Rng, traffic: Traffic) -> list[Request]:
    """Conversations of 8 turns behind one of four system prompts."""
    return talks(rng, traffic, CHAT, Segments())


def agents(rng: Rng, traffic: Traffic) -> list[Request]:
    """Tool loops of 15 steps behind 4k tokens of tools, of which there are twelve sets."""
    return talks(rng, traffic, AGENT, Segments())


def mixed(rng: Rng, traffic: Traffic) -> list[Request]:
    """Nothing shared; prompts of 100 to 16,000 tokens and answers of 10 to 800."""
    return alone(rng, poisson(rng, traffic.rate, 0.0, traffic.span_s), Segments())


def burst(rng: Rng, traffic: Traffic) -> list[Request]:
    """Groups, twice the rate for 10 s in 30; 40 % of each burst on one 6k prefix never seen."""
    segments = Segments()
    quiet = 3 / 4 * traffic.rate
    times = poisson(rng, quiet, 0.0, traffic.span_s)
    requests = grouped(rng, traffic, times, segments)
    for start in np.arange(0.0, traffic.span_s, BURST_EVERY_S):
        end = min(start + BURST_S, traffic.span_s)
        more = poisson(rng, quiet, start, end)
        new = rng.random(len(more)) < BURST_NEW_SHARE * 2
        requests += grouped(rng, traffic, more[~new], segments)
        prefix = segments.make(6144 // BLOCK_TOKENS)
        requests += [behind(rng, segments, at, prefix, session=prefix.number) for at in more[new]]
    return sorted(requests, key=lambda request: request.at)


def documents(rng: Rng, traffic: Traffic) -> list[Request]:
    """Kept aside: a 512-token head, then one to three of Zipf's documents, then a question."""
    segments = Segments()
    head = segments.make(512 // BLOCK_TOKENS)
    count = max(1, int(traffic.live_tokens / 4096))
    chosen = zipf(rng, count, 3 * poisson_count(traffic))
    trees: dict[tuple[int, ...], Segment] = {}
    requests = []
    times = poisson(rng, traffic.rate, 0.0, traffic.span_s)
    for place, at in enumerate(times):
        names = tuple(chosen[3 * place : 3 * place + 1 + int(rng.integers(3))].tolist())
        path = [head]
        for depth in range(1, len(names) + 1):
            if names[:depth] not in trees:
                trees[names[:depth]] = segments.make(int(rng.integers(16, 49)))
            path.append(trees[names[:depth]])
        requests.append(question(rng, segments, at, path, session=int(names[0])))
    return requests


def tenants(rng: Rng, traffic: Traffic) -> list[Request]:
    """Kept aside: chats, groups and lone prompts at once, at a rate that swings by a third."""
    segments = Segments()
    third = Traffic(traffic.nodes, traffic.rate / 3, traffic.span_s, traffic.working_set / 2)
    times = thinned(rng, poisson(rng, traffic.rate / 2, 0.0, traffic.span_s))
    requests = grouped(rng, third, times, segments)
    lone = thinned(rng, poisson(rng, traffic.rate / 2, 0.0, traffic.span_s))
    requests += alone(rng, lone, segments) + talks(rng, third, CHAT, segments)
    return sorted(requests, key=lambda request: request.at)


def poisson_count(traffic: Traffic) -> int:
    """Enough draws for the arrivals of a run."""
    return int(traffic.rate * traffic.span_s * 1.5) + 100


def poisson(rng: Rng, rate: float, start: float, end: float) -> np.ndarray:
    """Arrival times."""
    count = rng.poisson(rate * (end - start))
    return np.sort(rng.uniform(start, end, count))


def thinned(rng: Rng, times: np.ndarray) -> np.ndarray:
    """Keep two thirds on average, more or fewer with the swing."""
    keep = 2 / 3 * (1 + np.sin(2 * np.pi * times / SWING_S) / 3)
    return times[rng.random(len(times)) < keep]


def zipf(rng: Rng, count: int, draws: int) -> np.ndarray:
    """Ranks from 0 with weights 1/(rank+1)."""
    weights = 1.0 / np.arange(1, count + 1) ** ZIPF
    return rng.choice(count, size=draws, p=weights / weights.sum())


def grouped(rng: Rng, traffic: Traffic, times: np.ndarray, segments: Segments) -> list[Request]:
    """Requests of groups; the groups are new with every run of `Segments`, not with each call."""
    count = max(1, int(traffic.live_tokens / 6144))
    sizes = np.random.default_rng(count).integers(2048, 10_241, count) // BLOCK_TOKENS
    prefixes = segments.family("groups", [int(size) for size in sizes])
    ranks = zipf(rng, count, len(times))
    return [
        behind(rng, segments, at, prefixes[rank], session=int(rank))
        for at, rank in zip(times.tolist(), ranks.tolist(), strict=True)
    ]


def behind(rng: Rng, segments: Segments, at: float, prefix: Segment, *, session: int) -> Request:
    """One request of 0.2-1.8k tokens of its own after a shared prefix."""
    return question(rng, segments, at, [prefix], session=session)


def question(
    rng: Rng, segments: Segments, at: float, path: list[Segment], *, session: int
) -> Request:
    """200-1,800 tokens of its own and an answer of 20-180, after what others share."""
    own, answer = int(rng.integers(200, 1801)), int(rng.integers(20, 181))
    prompt = sum(segment.blocks for segment in path) * BLOCK_TOKENS + own
    last = segments.make((own + answer) // BLOCK_TOKENS + 1)
    return Request(float(at), session, (*path, last), prompt, answer)


def alone(rng: Rng, times: np.ndarray, segments: Segments) -> list[Request]:
    """Requests that share nothing; lengths spread evenly over their logarithm."""
    prompts = np.exp(rng.uniform(np.log(100), np.log(16_000), len(times))).astype(int)
    answers = np.exp(rng.uniform(np.log(10), np.log(800), len(times))).astype(int)
    requests = []
    for at, prompt, answer in zip(times.tolist(), prompts.tolist(), answers.tolist(), strict=True):
        own = segments.make((prompt + answer) // BLOCK_TOKENS + 1)
        requests.append(Request(at, own.number, (own,), prompt, answer))
    return requests


def talks(rng: Rng, traffic: Traffic, talk: Talk, segments: Segments) -> list[Request]:
    """Conversations in a steady state: those under way at 0 come with all they have said.

    The pause between turns follows from the rate and the working set.
    """
    live = traffic.live_tokens / talk.mean_tokens
    gap_s = live / traffic.rate
    heads = segments.family("heads", [talk.head_tokens // BLOCK_TOKENS] * talk.heads)
    life_s = gap_s * talk.turns
    starts = poisson(rng, traffic.rate / talk.turns, -life_s, traffic.span_s)
    firsts: list[Request] = []
    for start in starts.tolist():
        head = heads[int(rng.integers(talk.heads))]
        turns = conversation(rng, talk, start, gap_s, (head, segments))
        since = rng.uniform(0.0, RAMP_S) if start < 0 else 0.0
        due = [turn for turn in turns if since <= turn.at < traffic.span_s]
        for turn, after in zip(due, due[1:], strict=False):
            turn.follow = after
        firsts += due[:1]
    return sorted(firsts, key=lambda request: request.at)


def conversation(
    rng: Rng, talk: Talk, start: float, gap_s: float, place: tuple[Segment, Segments]
) -> list[Request]:
    """All turns of one conversation; each prompt repeats everything before it."""
    head, segments = place
    said = rng.integers(*talk.said, talk.turns)
    said[0] = rng.integers(*talk.first)
    answers = rng.integers(*talk.answer, talk.turns)
    waits = np.maximum(SERVICE_S, rng.exponential(gap_s, talk.turns))
    own = segments.make(int(said.sum() + answers.sum()) // BLOCK_TOKENS + 1)
    at, prompt = start, head.blocks * BLOCK_TOKENS
    turns = []
    for new, answer, wait in zip(said.tolist(), answers.tolist(), waits.tolist(), strict=True):
        prompt += new
        turns.append(Request(at, own.number, (head, own), prompt, answer))
        prompt += answer
        at += wait
    return turns


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of traffic; `rate` is load 1.0 of one node, in requests a second."""

    make: Callable[[Rng, Traffic], list[Request]]
    rate: float
    held_out: bool = False


# Load 1.0 is the highest rate that the plain cost (queue and prefill time plus a tenth of the
# active time) sustains on 8 nodes at a working set of 0.75, p95 of the first token under 1 s.
WORKLOADS: dict[str, Workload] = {
    "shared": Workload(shared, 9.2),
    "chat": Workload(chat, 14.6),
    "agents": Workload(agents, 10.1),
    "mixed": Workload(mixed, 6.9),
    "burst": Workload(burst, 8.7),
    "documents": Workload(documents, 6.0, held_out=True),
    "tenants": Workload(tenants, 7.3, held_out=True),
}
