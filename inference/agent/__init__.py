"""The agent of a host: reports what the host has, and runs the nodes that should run on it."""

import os

from inference.tls import CA_VARIABLE

# The hub's client reads it at its import: nothing but what is fetched is told to anybody.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
if os.environ.get(CA_VARIABLE, "").strip():
    # Its protocol for large files dials by a library that knows the system's authorities alone.
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
