"""Stage 2: which cluster (the nodes of one region) serves the request."""
