"""Names and pace of the sampled figures: how many requests wait, and where, and tokens drafted.

Every gateway samples its own requests, and a node tells each draft to one gateway, so sums over
gateways count nothing twice.
"""

SAMPLE_S = 1.0
WAITING_IN_GATEWAY = "waiting_gateway"
WAITING_ON_NODES = "waiting_nodes"
WAITING = "waiting"
# Tokens that engines guessed since the last sample, and those of them that were right.
DRAFTED = "drafted"
ACCEPTED = "accepted"
GAUGES = (WAITING_IN_GATEWAY, WAITING_ON_NODES, WAITING)
DRAFTS = (DRAFTED, ACCEPTED)
SAMPLES = (*GAUGES, *DRAFTS)
