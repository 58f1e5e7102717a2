"""Names and pace of the sampled figures: how many requests wait, where, how urgent they are and how
long the first of them has; and tokens drafted.

Every gateway samples its own requests, and a node tells each draft to one gateway, so sums over
gateways count nothing twice.
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
SAMPLES = (*GAUGES, *DRAFTS)
