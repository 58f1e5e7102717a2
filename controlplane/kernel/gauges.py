"""Names and pace of the sampled figures: how many requests wait, where, how urgent they are and how
long the first of them has; tokens drafted; and how busy nodes are.

Every gateway samples its own requests, and a node tells each draft to one gateway, so sums over
gateways count nothing twice. Every gateway samples every node: only averages and maxima of those
figures mean anything.
"""

SAMPLE_S = 1.0
WAITING_IN_GATEWAY = "waiting_gateway"
WAITING_ON_NODES = "waiting_nodes"
WAITING = "waiting"
# In the gateway, by priority from low to high; and since when the first of all waits there.
WAITING_BY_PRIORITY = ("waiting_low", "waiting_normal", "waiting_high")
OLDEST_WAIT_MS = "waiting_oldest_ms"
# Tokens that engines guessed since the last sample, and those of them that were right.
DRAFTED = "drafted"
ACCEPTED = "accepted"
GAUGES = (WAITING_IN_GATEWAY, WAITING_ON_NODES, WAITING, *WAITING_BY_PRIORITY, OLDEST_WAIT_MS)
DRAFTS = (DRAFTED, ACCEPTED)
# Of all nodes that serve a model: sequences in progress, and jobs that this gateway may send them.
RUNNING = "running"
CREDITS = "credits"
# Of each node: sequences in its step, and how much of its KV pool is taken.
BATCH = "batch"
KV_USED_PERMILLE = "kv_used_permille"
NODES = (RUNNING, CREDITS, BATCH, KV_USED_PERMILLE)
SAMPLES = (*GAUGES, *DRAFTS, *NODES)
