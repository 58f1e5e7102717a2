"""Names and pace of the sampled figures: how many requests wait, and where.

Every gateway samples its own requests, so sums over gateways count nothing twice.
"""

SAMPLE_S = 1.0
WAITING_IN_GATEWAY = "waiting_gateway"
WAITING_ON_NODES = "waiting_nodes"
WAITING = "waiting"
GAUGES = (WAITING_IN_GATEWAY, WAITING_ON_NODES, WAITING)
