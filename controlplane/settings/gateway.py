"""What a gateway process knows of its place: region and how many of its kind share the limits."""

from controlplane.settings import env

REGION = env.text("SLUICE_REGION", "local")
# Limits are divided by this while Redis is away, so that all processes together never exceed them.
GATEWAY_PROCESSES = env.integer("SLUICE_GATEWAY_PROCESSES", 1, least=1, most=1024)
