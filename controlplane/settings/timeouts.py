"""How long each hop of a request may take, in seconds unless the name says otherwise.

Pairs are the floor and the ceiling of a bound that follows what was measured; docs/timeouts.md has
all of them in a table.
"""

from controlplane.settings import env

_MOST = 3_600
# From a client: its headers, its body, and how long it may read nothing of an answer.
HEAD_S = env.integer("SLUICE_HEAD_S", 10, least=1, most=_MOST)
BODY_S = env.integer("SLUICE_BODY_S", 30, least=1, most=_MOST)
SEND_S = env.integer("SLUICE_SEND_S", 30, least=1, most=_MOST)
# Redis, PostgreSQL and the classifier of the safety layer.
LIMITER_REPLY_MS = env.integers("SLUICE_LIMITER_REPLY_MS", (50, 250), count=2, least=1, most=10_000)
LEDGER_HOLD_S = env.integer("SLUICE_LEDGER_HOLD_S", 2, least=1, most=60)
LEDGER_SETTLE_S = env.integer("SLUICE_LEDGER_SETTLE_S", 10, least=1, most=300)
SAFETY_S = env.integer("SLUICE_SAFETY_S", 1, least=1, most=60)
# A node: token ids of a prompt, a first token, the next one, any step, an answered ping, an ended
# job.
TOKENS_MS = env.integers("SLUICE_TOKENS_MS", (500, 2_000), count=2, least=1, most=60_000)
FIRST_TOKEN_S = env.integers("SLUICE_FIRST_TOKEN_S", (3, 60), count=2, least=1, most=_MOST)
TOKEN_GAP_S = env.integers("SLUICE_TOKEN_GAP_S", (10, 60), count=2, least=1, most=_MOST)
NODE_QUIET_S = env.integers("SLUICE_NODE_QUIET_S", (2, 15), count=2, least=1, most=_MOST)
NODE_STALLED_S = env.integer("SLUICE_NODE_STALLED_S", 30, least=1, most=_MOST)
NODE_PONG_S = env.integer("SLUICE_NODE_PONG_S", 15, least=2, most=_MOST)
NODE_CANCEL_S = env.integer("SLUICE_NODE_CANCEL_S", 15, least=1, most=_MOST)
# A hosted provider, until its answer begins and within it.
PROVIDER_SILENCE_S = env.integers(
    "SLUICE_PROVIDER_SILENCE_S", (60, 300), count=2, least=1, most=300
)
