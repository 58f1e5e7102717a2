"""Where messages about alerts may go, and what they are signed with."""

from controlplane.settings import env
from controlplane.settings.secret_files import secret

# Webhooks into one's own network, and over plain HTTP: for receivers beside the installation.
WEBHOOKS_PRIVATE = env.boolean("SLUICE_WEBHOOKS_PRIVATE", False)
# Each channel's signing secret is derived from this; another one makes them all new.
WEBHOOK_KEY = secret("SLUICE_WEBHOOK_KEY", "webhook-key").encode()
