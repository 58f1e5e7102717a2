"""Where messages about alerts may go, and what they are signed with."""

from controlplane.settings import env
from controlplane.settings.secret_files import bytes_before, needed, secret

# Webhooks into one's own network, and over plain HTTP: for receivers beside the installation.
WEBHOOKS_PRIVATE = env.boolean("SLUICE_WEBHOOKS_PRIVATE", False)
# Where people reach the pages: messages lead there. Without it they have a runbook's path alone.
PAGES_URL = env.address("SLUICE_PAGES_URL", ("https", "http"), chars_max=200).rstrip("/")
# Each channel's signing secret is derived from this; another one makes them all new.
if needed("web", "worker"):
    WEBHOOK_KEY = secret("SLUICE_WEBHOOK_KEY", "webhook-key").encode()
    WEBHOOK_KEYS_BEFORE = bytes_before("SLUICE_WEBHOOK_KEY", "webhook-key")
