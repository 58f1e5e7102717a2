"""What an engine may declare that it can do. A job that asks for more is refused by name."""

from enum import StrEnum

# The priority of a job that may wait for all others, such as a line of a batch.
BACKGROUND = -1


class Capability(StrEnum):
    """One word of the vocabulary; the value is what travels in `Hello.capabilities`."""

    # What a job is made of.
    TOKENS = "tokens"  # generates from prompt token ids
    TEXT = "text"  # generates from the request's own messages; ids are not known
    EMBEDDINGS = "embeddings"  # turns inputs into vectors
    VISION = "vision"  # pictures between its texts
    TOKENIZES = "tokenizes"  # tells the token ids of a request's own messages
    # How it is answered.
    STREAM = "stream"  # outputs come step by step
    N = "n"  # several choices for one prompt
    PROMPTS = "prompts"  # several prompts in one job
    STOP_TOKENS = "stop_tokens"
    IGNORE_EOS = "ignore_eos"
    MIN_TOKENS = "min_tokens"
    LOGPROBS = "logprobs"
    PROMPT_LOGPROBS = "prompt_logprobs"  # and answers without any token
    GRAMMAR = "grammar"  # output held to a grammar or schema
    # How tokens are drawn.
    TEMPERATURE = "temperature"
    TOP_P = "top_p"
    TOP_K = "top_k"
    MIN_P = "min_p"
    FREQUENCY_PENALTY = "frequency_penalty"
    PRESENCE_PENALTY = "presence_penalty"
    REPETITION_PENALTY = "repetition_penalty"
    LOGIT_BIAS = "logit_bias"
    SEED = "seed"
    SPECULATION = "speculation"  # drafts are verified several at a time
    # How it is scheduled.
    CANCEL = "cancel"
    DEADLINE = "deadline"
    PRIORITY = "priority"
    # The prefix cache.
    PREFIX_CACHE = "prefix_cache"  # hits are reported per request
    KV_EVENTS = "kv_events"  # the index of the cache can be followed
    SALT = "salt"  # tenants never share cached blocks
    HANDS_OVER = "hands_over"  # only computes prompts, for nodes that take them over
    TAKES_OVER = "takes_over"


def capabilities(names: str) -> tuple[Capability, ...]:
    """Those of these names, which blanks divide; raises ValueError."""
    return tuple(map(Capability, names.split()))
