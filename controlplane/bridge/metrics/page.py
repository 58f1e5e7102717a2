"""`/metrics` of one gateway process, written at each scrape from what the process holds in memory.

The web role tells what the database knows of the whole installation; here each process tells what
it has seen itself, so Prometheus sums over gateways. At most `SERIES_MAX` lines, by the bounds of
the names that become labels.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean

from controlplane.bridge.metrics.figures import Figure
from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.bridge.record.series import ALL_MODELS
from controlplane.bridge.record.standard import Classic, Standard
from controlplane.bridge.record.totals import (
    INTER_TOKEN,
    OVERHEAD,
    STAGE_BOUNDS,
    UNATTRIBUTED,
    US_PER_S,
    BoundedNames,
    RunningTotals,
    Sums,
)
from controlplane.bridge.record.waiting import waiting_now
from controlplane.gateway.app_state import AppState
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.measured.breaker import BreakerState
from controlplane.kernel.measures import (
    ACCEPTED,
    BREAKER_OPENED,
    CLIENT_RTT,
    DRAFTED,
    GATEWAY_WAIT,
    PHASES,
    PREEMPTED,
    STAGE_NAMES,
)
from controlplane.telemetry.exposition import Exposition
from inference.text.pieces import PieceCache

SERIES_MAX = 10_000
PROVIDER = "sluice"
OPERATIONS = {"chat": "chat", "completion": "text_completion", "embedding": "embeddings"}
MS_PER_S = 1_000
_STAGE_BOUNDS = [repr(bound) for bound in STAGE_BOUNDS]
# Places in a row of usage, and what each is called here.
_USAGE = (
    ("sluice_failed_requests_total", "Requests that ended in an error, and not by their client", 1),
    ("sluice_uncached_tokens_total", "Prompt tokens that were computed", 3),
    ("sluice_cached_tokens_total", "Prompt tokens that came from a prefix cache", 4),
    ("sluice_output_tokens_total", "Tokens that were generated and delivered", 5),
    ("sluice_charged_nano_usd_total", "Charges, in billionths of a US dollar", 6),
    ("sluice_cache_available_tokens_total", "Prompt tokens cached at the best node", 7),
    ("sluice_cache_captured_tokens_total", "Prompt tokens cached at the chosen node", 8),
)


def metrics_page(state: AppState, recorder: PostgresRecorder, own: Iterable[Figure]) -> Exposition:
    """Everything a gateway tells, of requests as far as they are folded."""
    page, totals, sums = Exposition(), recorder.totals, recorder.sums()
    page.build()
    _requests(page, totals, sums)
    _ends(page, totals)
    _tallies(page, sums)
    _latencies(page, sums)
    _standard(page, totals.standard)
    _waiting(page, state, totals.models)
    _nodes(page, state.fleet.approved_nodes(), totals.pools)
    _encoding(page, state.fleet.assets.pieces)
    for figure in own:
        page.one(*figure)
    page.one(
        "sluice_dropped_rows_total",
        "counter",
        "Requests that telemetry could not keep a row of",
        recorder.dropped,
    )
    page.one(
        "sluice_dropped_series_total",
        "counter",
        "Requests without series of their own since a bound was reached, and series refused",
        recorder.dropped_series,
    )
    page.one(
        "sluice_folded_names_total",
        "counter",
        "Values under the label other, since more names came up than have labels; none is lost",
        totals.folded,
    )
    page.one(
        "sluice_dropped_objective_counts_total",
        "counter",
        "Counts for objectives that had no room or were refused",
        recorder.objectives.dropped,
    )
    return page


def _requests(page: Exposition, totals: RunningTotals, sums: Sums) -> None:
    family = page.family(
        "sluice_requests_total", "counter", "Requests with a known key, by class of status"
    )
    for (model, route, status), count in sorted(totals.requests.items()):
        family.add({"model": model, "route": route, "status": f"{status}xx"}, count)
    for name, text, place in _USAGE:
        family = page.family(name, "counter", text)
        for (model, route), counts in sorted(sums.usage.items()):
            family.add({"model": model, "route": route}, counts[place])


def _ends(page: Exposition, totals: RunningTotals) -> None:
    for name, text, counts in (
        ("sluice_cancels_total", "Requests whose client left", totals.cancels),
        ("sluice_sheds_total", "Requests refused because no node had capacity", totals.sheds),
        ("sluice_retries_total", "Attempts after which another node was tried", totals.retries),
    ):
        page.family(name, "counter", text).add_all("model", sorted(counts.items()))
    family = page.family("sluice_refusals_total", "counter", "Requests that failed, by error code")
    for (model, code), count in sorted(totals.refusals.items()):
        family.add({"model": model, "code": code}, count)
    family = page.family("sluice_finishes_total", "counter", "Answers by why their text ended")
    for (model, reason), count in sorted(totals.finishes.items()):
        family.add({"model": model, "reason": reason}, count)


def _tallies(page: Exposition, sums: Sums) -> None:
    for measure, name, text, label in (
        (DRAFTED, "sluice_drafted_tokens_total", "Tokens that engines guessed", "model"),
        (ACCEPTED, "sluice_accepted_tokens_total", "Guessed tokens that were right", "model"),
        (PREEMPTED, "sluice_preemptions_total", "Requests put back to free KV blocks", "model"),
        (BREAKER_OPENED, "sluice_breaker_openings_total", "Nodes taken out of service", "pool"),
    ):
        found = sorted((key[1], count) for key, count in sums.tallies.items() if key[0] == measure)
        page.family(name, "counter", text).add_all(label, found)


def _latencies(page: Exposition, sums: Sums) -> None:
    kinds: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
        ("sluice_stage_duration_seconds", "Time in one of the seven stages", "stage", STAGE_NAMES),
        (
            "sluice_inference_phase_seconds",
            "Time in one part of inference",
            "phase",
            tuple(PHASES.values()),
        ),
        ("sluice_queue_wait_seconds", "Wait in the gateway for a node", "", (GATEWAY_WAIT,)),
        ("sluice_overhead_seconds", "Total time less that of inference", "", (OVERHEAD,)),
        ("sluice_unattributed_seconds", "Time in none of the stages", "", (UNATTRIBUTED,)),
        ("sluice_inter_token_seconds", "Time between two deliveries of tokens", "", (INTER_TOKEN,)),
        (
            "sluice_client_round_trip_seconds",
            "Round trip on the connection of a client, where no proxy is between; in no stage",
            "",
            (CLIENT_RTT,),
        ),
    )
    for name, text, label, measures in kinds:
        family = page.family(name, "histogram", text)
        for measure in measures:
            for model, latency in sorted(
                (key[1], value) for key, value in sums.latencies.items() if key[0] == measure
            ):
                labels = {label: measure, "model": model} if label else {"model": model}
                total_s = latency.total_us / US_PER_S
                family.add_histogram(labels, _STAGE_BOUNDS, latency.counts, total_s)


def _standard(page: Exposition, standard: Standard) -> None:
    told: tuple[tuple[str, str, str, Classic], ...] = (
        (
            "gen_ai_server_request_duration_seconds",
            "Time from a request's arrival at the gateway to its end",
            "error_type",
            standard.duration,
        ),
        (
            "gen_ai_server_time_to_first_token_seconds",
            "Time from arrival at the gateway to the first token there",
            "",
            standard.first_token,
        ),
        (
            "gen_ai_server_time_per_output_token_seconds",
            "Mean time of a token after the first, of each answer that succeeded",
            "",
            standard.per_token,
        ),
        (
            "gen_ai_client_token_usage",
            "Tokens of a request; input counts cached ones, too",
            "gen_ai_token_type",
            standard.tokens,
        ),
    )
    for name, text, attribute, classic in told:
        family = page.family(name, "histogram", text)
        bounds = [repr(bound) for bound in classic.bounds]
        for (operation, model, third), row in sorted(classic.rows.items()):
            labels = {
                "gen_ai_operation_name": OPERATIONS.get(operation, operation),
                "gen_ai_provider_name": PROVIDER,
                "gen_ai_request_model": model,
            }
            if attribute and third:
                labels[attribute] = third
            total = row[-1] if classic.scale == 1 else row[-1] / classic.scale
            family.add_histogram(labels, bounds, row[:-1], total)


def _waiting(page: Exposition, state: AppState, names: BoundedNames) -> None:
    waiting: Counter[tuple[str, str]] = Counter()
    oldest: dict[str, float] = {}
    for depth in waiting_now(state):
        if depth.model == ALL_MODELS:
            continue
        model = names.of(depth.model)
        waiting[model, "gateway"] += depth.in_gateway
        waiting[model, "node"] += depth.on_nodes
        oldest[model] = max(oldest.get(model, 0.0), depth.oldest_ms / MS_PER_S)
    family = page.family(
        "sluice_waiting_requests", "gauge", "Requests that wait for a first token, by where"
    )
    for (model, where), count in sorted(waiting.items()):
        family.add({"model": model, "where": where}, count)
    family = page.family(
        "sluice_waiting_oldest_seconds", "gauge", "Wait of the request that waits here longest"
    )
    family.add_all("model", sorted(oldest.items()))


def _encoding(page: Exposition, pieces: PieceCache) -> None:
    name = "sluice_encode_cache"
    page.one(f"{name}_hits_total", "counter", "Pieces of prompts with known tokens", pieces.hits)
    page.one(f"{name}_misses_total", "counter", "Pieces of prompts to encode", pieces.misses)
    page.one(f"{name}_bytes", "gauge", "Memory of pieces and their tokens", pieces.size_bytes)


class _Pool:
    """What the links of one pool add up to."""

    def __init__(self) -> None:
        self.breakers: Counter[str] = Counter({state.value: 0 for state in BreakerState})
        self.ready = self.running = self.own_jobs = self.blocks = self.used_blocks = 0
        self.decode_shares: list[float] = []
        self.prefill_shares: list[float] = []

    def add(self, link: NodeLink) -> None:
        self.breakers[link.breaker.state.value] += 1
        self.ready += link.takes_jobs
        self.own_jobs += link.account.active
        if link.load is not None:
            self.running += link.load.running
            self.blocks += link.hello.kv_blocks
            self.used_blocks += max(0, link.hello.kv_blocks - link.load.kv_free_blocks)
            if (shares := link.load.shares) is not None:
                self.decode_shares += [] if shares.decode is None else [shares.decode]
                self.prefill_shares += [] if shares.prefill is None else [shares.prefill]


def _nodes(page: Exposition, links: Iterable[NodeLink], names: BoundedNames) -> None:
    pools: dict[str, _Pool] = {}
    for link in links:
        pools.setdefault(names.claim(link.hello.pool), _Pool()).add(link)
    breakers = page.family("sluice_breakers", "gauge", "Connected nodes by state of their breaker")
    for pool, each in sorted(pools.items()):
        for state, count in each.breakers.items():
            breakers.add({"pool": pool, "state": state}, count)
    for name, text, values in _pool_gauges(pools):
        page.family(name, "gauge", text).add_all("pool", values)


def _pool_gauges(pools: Mapping[str, _Pool]) -> Iterator[tuple[str, str, list[tuple[str, float]]]]:
    rows = sorted(pools.items())
    yield (
        "sluice_nodes_ready",
        "Nodes that take jobs from this gateway",
        [(pool, each.ready) for pool, each in rows],
    )
    yield (
        "sluice_node_jobs",
        "Jobs of this gateway that nodes have",
        [(pool, each.own_jobs) for pool, each in rows],
    )
    yield (
        "sluice_node_running_sequences",
        "Sequences in the present batches of nodes, of all gateways",
        [(pool, each.running) for pool, each in rows],
    )
    yield (
        "sluice_node_kv_used_ratio",
        "Used part of the KV cache of nodes, all together",
        [(pool, each.used_blocks / each.blocks) for pool, each in rows if each.blocks],
    )
    yield (
        "sluice_node_decode_bandwidth_ratio",
        "Part of the memory bandwidth that decoding needed, mean of the nodes that say",
        [(pool, fmean(each.decode_shares)) for pool, each in rows if each.decode_shares],
    )
    yield (
        "sluice_node_prefill_compute_ratio",
        "Part of the compute that prefill needed, mean of the nodes that say",
        [(pool, fmean(each.prefill_shares)) for pool, each in rows if each.prefill_shares],
    )
