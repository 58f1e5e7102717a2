"""The agent of a host: reports what the host has, and runs the nodes that should run on it."""

import os

# The hub's client reads it at its import: nothing but what is fetched is told to anybody.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
