"""The frames that travel between a gateway and a node, one typed struct each.

Direction is part of the type: a gateway accepts `FromNode` alone, a node `FromGateway` alone.
Durations are microseconds measured by one clock; no timestamp crosses the wire, since subtracting
two machines' clocks says nothing.
"""

import msgspec

from inference.contract.drain import Drain, Draining, Undrain
from inference.contract.grammar import Grammar
from inference.contract.parts import ShownPicture, TokenLogprob, ToolCallDelta, Vectors
from inference.contract.places import GatewayAddress
from inference.contract.replay import Resume, Resumed
from inference.contract.roofline import Ceilings, ComputePath, Shares
from inference.contract.tokens import Tokenize, Tokens
from inference.contract.transfer import Transfer

PROTOCOL_VERSION = 2
MODELS_MAX = 64  # that one node serves
FRAME_BYTES_MAX = 4 * 1024 * 1024
ASSET_BYTES_MAX = 32 * 1024 * 1024
ASSET_PART_BYTES = 1024 * 1024
REQUEST_ID_BYTES = 16
OUTPUT_TOKENS_PER_FRAME_MAX = 4096
OUTPUT_TEXT_CHARS_MAX = 512 * 1024
REQUEST_JSON_BYTES_MAX = 3 * 1024 * 1024
# Counted by token ids; reported by the engine, which alone knows them, all or all but the reasoning
# tokens; or guessed, as for a server that was cut off before it reported.
USAGE_SOURCES = ("", "engine", "engine_part", "estimate")
CHOICES_MAX = 8
JOB_CHOICES_MAX = 128  # of all the prompts of a job
LOGPROBS_MAX = 20
# About what a tokenizer makes of English; it weighs texts whose tokens are not known yet.
BYTES_PER_TOKEN = 4
INPUTS_MAX = 2048
INPUTS_TOKENS_MAX = 300_000
# Written as text such a frame keeps a gateway's loop for some milliseconds.
VECTOR_BYTES_PER_FRAME_MAX = 128 * 1024


class Frame(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """Base of every struct on the wire: a msgpack array that begins with its tag, in no cycle."""


class Usage(Frame, frozen=True):
    """Cumulative token counts of one request; `cached_tokens` lies inside `prompt_tokens`.

    Before the first token `prompt_tokens` are those that were computed or found in the cache so
    far, 0 where the engine does not know; from then on all of them.
    `source` is one of `USAGE_SOURCES`. `reasoning_tokens` lie inside `completion_tokens`.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    source: str = ""
    reasoning_tokens: int = 0


class Timing(Frame, frozen=True):
    """Durations on the node, microseconds, so far; `held_us` runs from job frame to this frame."""

    queue_us: int
    prefill_us: int
    decode_us: int
    held_us: int


class Sampling(Frame, frozen=True):
    """How tokens are sampled; ranges are checked at the gateway's edge.

    `logprobs` is None for none, else how many alternatives to report besides the chosen token.
    `seed` None draws a fresh one. `top_k` 0 means no limit. With `prompt_logprobs`, which counts as
    `logprobs` does, the tokens of the prompt are scored, too, and `max_tokens` may be 0. The first
    `min_tokens` are no end tokens; `repetition_penalty` is of tokens in the prompt or generated.
    """

    max_tokens: int
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int | None = None
    logprobs: int | None = None
    ignore_eos: bool = False
    logit_bias: dict[int, float] = msgspec.field(default_factory=dict)
    grammar: Grammar | None = None
    prompt_logprobs: int | None = None
    min_tokens: int = 0
    repetition_penalty: float = 1.0


class Output(Frame, frozen=True):
    """What one engine step made for one choice of one request.

    `usage` is cumulative over all choices, so that any cut stream can be billed exactly.
    `finish` is one of stop, length, cancelled, error, and set once per choice; engines that take
    only text may also say tool_calls or content_filter, and fill `text`, `tool_calls` and
    `reasoning`, which is what a model thought before its text.
    `prompt_logprobs` are of the prompt's next tokens, from the second on; the first choice of each
    prompt has them, all of them before its first token. With them `logprobs` names the end token.
    """

    request: bytes
    choice: int
    tokens: list[int]
    usage: Usage
    timing: Timing
    finish: str | None = None
    logprobs: list[TokenLogprob] | None = None
    text: str | None = None
    tool_calls: list[ToolCallDelta] | None = None
    vectors: Vectors | None = None
    reasoning: str | None = None
    prompt_logprobs: list[TokenLogprob] | None = None
    transfer: bytes | None = None

    @property
    def delivered(self) -> int:
        """Tokens in it; text, whose tokens only its engine knows, and vectors count as one."""
        shown = self.text or self.reasoning or self.tool_calls or self.vectors
        return len(self.tokens) or bool(shown)


class ModelOffer(Frame, frozen=True):
    """A model that a node serves; `digest` names its tokenizer and chat template (SHA-256, hex).

    Where only a server behind the node has them, its digest is empty and its `vocab_size` 0.
    `dimensions` are the sizes of vectors that a model which embeds can answer with, its own first;
    a model that generates has none. A cross-encoder, whose inputs are pairs of texts, has the one
    dimension of their score. An `adapter` changes the first model of its node, in its cache.
    """

    name: str
    digest: str
    context_window: int
    vocab_size: int
    dimensions: list[int] = msgspec.field(default_factory=list)
    adapter: bool = False


class Hello(Frame, tag="hello", frozen=True):
    """The first frame of a link. A new epoch of the same node fences the old one.

    `credits`: how many jobs the node takes at once from this gateway; others may hold all of them,
    then more follow in `Credits`. `kv_blocks`: pool size in blocks of `block_size` tokens.
    `silence_s`: how long a server behind the node, or a step of its engine, may bring nothing.
    `cold_start_ms`: from the start of the process until its engine could serve; 0 where unknown.
    `ceilings`, `path`: None where the engine cannot say. `session` names this link for a `Resume`
    after a break; empty from a node that never asks for one. `release` is the node's version."""

    protocol: int
    node: str
    epoch: str
    pool: str
    region: str
    engine: str
    device: str
    dtype: str
    block_size: int
    kv_blocks: int
    credits: int
    capabilities: list[str]
    models: list[ModelOffer]
    cold_start_ms: int = 0
    ceilings: Ceilings | None = None
    silence_s: float = 0.0
    session: str = ""
    path: ComputePath | None = None
    release: str = ""


class AssetPart(Frame, tag="asset", frozen=True):
    """One part of a tokenizer or chat template, asked for by digest; `last` closes the digest."""

    digest: str
    name: str
    data: bytes
    last: bool


class Processing(Frame, frozen=True):
    """A job that is worked on, by a server behind the node or in a step that computes; nothing has
    come of it for `silent_ms`.
    """

    request: bytes
    silent_ms: int


class Step(Frame, tag="step", frozen=True):
    """All outputs of one engine step, with the node's load after it.

    `waiting_tokens` are uncached prompt tokens not prefilled yet; `oldest_block_s` is the age of
    the block that eviction would take next; `step_us` is the duration of the step itself.
    `drafted` tokens were guessed in this step, of which `accepted` were right, and
    `preemptions` sequences lost their blocks; only one of several gateways gets these, so that
    their sum is right.
    `prefilled_tokens` are prompt tokens that this step computed; an engine that reports them
    reports `waiting_tokens`, too. `kv_cached_blocks` are those of `kv_free_blocks` that are still
    cached: taking them evicts. `others_active` and `others_queued_tokens` are what other gateways
    have here: jobs, and their part of `waiting_tokens`. `shares` is None where it is unknown. With
    `step_us` 0 and no outputs it is not a step and carries only the load. `processing` names
    jobs that run without new outputs; unless it is named again soon, a job gets no more than its
    usual time. `computing_ms`: how long the step under way has computed, for any
    gateway's jobs; 0 between steps, and where that is unknown.
    """

    outputs: list[Output]
    running: int
    waiting: int
    waiting_tokens: int
    kv_free_blocks: int
    oldest_block_s: float
    step_us: int
    preemptions: int
    drafted: int = 0
    accepted: int = 0
    prefilled_tokens: int = 0
    kv_cached_blocks: int = 0
    others_active: int = 0
    others_queued_tokens: int = 0
    shares: Shares | None = None
    processing: list[Processing] = msgspec.field(default_factory=list)
    computing_ms: int = 0


class KvEvents(Frame, tag="kv", frozen=True):
    """Blocks that were cached or evicted, as 16-byte hashes back to back.

    `seq` grows by one; a gap makes the gateway ask for a snapshot. `snapshot` replaces everything.
    `unknown`: the cache cannot be followed, so from here on nothing is known of it.
    """

    seq: int
    stored: bytes
    removed: bytes
    snapshot: bool = False
    unknown: bool = False


class Report(Frame, tag="report", frozen=True):
    """Final usage of a request; the node keeps it until the gateway acknowledges it.

    `ticket` is the job's: without it no gateway accepts that this node had the request.
    """

    request: bytes
    model: str
    usage: Usage
    timing: Timing
    finish: str
    ticket: bytes


class Rejected(Frame, tag="rejected", frozen=True):
    """The node did not take a job.

    `code` is one of full, unknown_model, too_long, bad_job, bad_request, bad_grammar,
    content_filter, draining. `bad_grammar` cannot be followed, and `message` says why. `bad_job` is
    a fault of the gateway; `message` of `bad_request` and `content_filter` is for the client.
    """

    request: bytes
    code: str
    message: str


class Credits(Frame, tag="credits", frozen=True):
    """How many jobs the node takes at once from this gateway from now on; 0 is possible.

    A gateway with more of them in flight sends none until enough have ended.
    """

    number: int
    credits: int


class Pong(Frame, tag="pong", frozen=True):
    """Answer to `Ping`, with the same number; `received` frames have come since the welcome.

    `cpu_permille` of the machine's processors were busy lately; None where that is unknown.
    """

    number: int
    received: int = 0
    cpu_permille: int | None = None


class Offers(Frame, tag="offers", frozen=True):
    """What the node serves from now on, in place of what its hello said; jobs under way go on."""

    models: list[ModelOffer]
    capabilities: list[str]


class Welcome(Frame, tag="welcome", frozen=True):
    """The gateway accepted the link; `gateway` is its instance id, `gateways` are all that live.

    For `resume_s` after a break it can resume the session; 0 if it never does.
    """

    protocol: int
    gateway: str
    ping_interval_s: float
    gateways: list[GatewayAddress] = msgspec.field(default_factory=list)
    resume_s: float = 0.0


class Gateways(Frame, tag="gateways", frozen=True):
    """The list of live gateways has changed; it replaces the one before."""

    gateways: list[GatewayAddress]


class CreditsTaken(Frame, tag="credits_taken", frozen=True):
    """The gateway applies the `Credits` of that number from here on.

    Its jobs sent before are ahead of this frame, so the node can grant the difference to others.
    """

    number: int


class Job(Frame, tag="job", frozen=True):
    """One request: token ids in, tokens out.

    `hashes` is the salted chain of the prompt's full blocks (16 bytes each) at the node's block
    size; `salt` separates tenants and seeds the chain for blocks made later. `stop_tokens` end a
    choice besides the model's own end tokens. `deadline_ms` counts from receipt. An engine that
    takes text gets no tokens but `request_json`: the prompt and everything else that sampling
    does not hold, as an OpenAI request body without the identity of its user. An engine that
    embeds gets no tokens but `inputs`, the token ids of each text, and answers with `Vectors`.
    `traceparent` and `tracestate` are headers for a server behind the node; empty without a trace.
    `ticket` proves to every gateway that this node was given the job; it goes into its `Report`.
    `lengths`: `tokens` are several prompts back to back, of so many each; zeros where they are in
    `request_json`, which has no URLs of `pictures`. Choice c is one of prompt c // n; no hashes.
    If it `hands_over`, its one output says where `transfer` of a job elsewhere has its prompt."""

    request: bytes
    model: str
    tokens: list[int]
    salt: bytes
    hashes: bytes
    sampling: Sampling
    stop_tokens: list[int]
    deadline_ms: int
    priority: int = 0
    request_json: bytes = b""
    inputs: list[list[int]] = msgspec.field(default_factory=list)
    traceparent: str = ""
    tracestate: str = ""
    ticket: bytes = b""
    lengths: list[int] = msgspec.field(default_factory=list)
    pictures: list[ShownPicture] = msgspec.field(default_factory=list)
    hands_over: bool = False
    transfer: Transfer | None = None

    @property
    def choices(self) -> int:
        return self.sampling.n * (len(self.lengths) or 1)


class Cancel(Frame, tag="cancel", frozen=True):
    """Stop a request in whatever state it is and free its blocks within one engine step."""

    request: bytes


class Ack(Frame, tag="ack", frozen=True):
    """The gateway has the charge on the ledger; the node may forget these reports."""

    requests: list[bytes]


class AssetRequest(Frame, tag="asset_request", frozen=True):
    """Ask for the tokenizer and chat template behind a digest."""

    digest: str


class KvSnapshotRequest(Frame, tag="kv_request", frozen=True):
    """Ask for the whole block index after a gap."""


class Ping(Frame, tag="ping", frozen=True):
    """Liveness probe of the application, not of the socket; `received` as in `Pong`."""

    number: int
    received: int = 0


_Standing = Hello | Offers | Resume | Credits | Draining | Pong
FromNode = _Standing | AssetPart | Step | KvEvents | Report | Rejected | Tokens
_Asked = Job | Cancel | Ack | AssetRequest | KvSnapshotRequest | Ping | Tokenize
FromGateway = Welcome | Resumed | Gateways | CreditsTaken | Drain | Undrain | _Asked
