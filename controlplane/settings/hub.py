"""Where staff search for models; agents fetch from the hub of their own environment."""

from controlplane.settings import env

HUB_USUAL = "https://huggingface.co"
# Where nothing may be asked outside, staff type what they know.
HUB_OFF = "off"
HUB_URL = ""
if env.text("SLUICE_HUB_URL") != HUB_OFF:
    HUB_URL = env.address("SLUICE_HUB_URL", ("https", "http"), chars_max=200) or HUB_USUAL
    HUB_URL = HUB_URL.rstrip("/")
