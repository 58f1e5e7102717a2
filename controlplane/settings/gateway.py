"""What a gateway process must know about its surroundings."""

from controlplane.settings import env
from controlplane.settings.database import EMBEDDED_DATABASE

# The address that clients use for /v1, where it is not the pages' own; pages may connect to it.
GATEWAY_URL = env.text("SLUICE_GATEWAY_URL")
# Where the pages live when that is another origin: their Playground may call /v1 from a browser.
PAGES_ORIGINS = env.words("SLUICE_PAGES_ORIGINS")
# Where nodes dial this process, from wherever they stand; without it no other gateway tells them.
ADVERTISE_URL = env.address("SLUICE_ADVERTISE_URL", ("ws", "wss"), chars_max=200)
# How many gateway processes `manage.py sluice run` keeps: one for each core that serves traffic.
GATEWAYS_MAX = 64
GATEWAYS = env.integer("SLUICE_GATEWAYS", 1, least=1, most=GATEWAYS_MAX)
# Addresses of the proxies in front, whose `X-Request-Start` is believed.
TRUSTED_PROXIES = env.words("SLUICE_TRUSTED_PROXIES")
# The first tokenizer and template offered for a model count as approved: on one's own machine,
# where every node is one's own. Otherwise staff approve each.
TRUST_FIRST_DIGEST = env.boolean("SLUICE_TRUST_FIRST_DIGEST", EMBEDDED_DATABASE)
REGION = env.text("SLUICE_REGION", "local")
# Where clients are: a header that those proxies set, or else the network of the client's address.
REGION_HEADER = env.text("SLUICE_REGION_HEADER", "x-sluice-region").lower()
REGION_NETWORKS = env.networks("SLUICE_REGION_NETWORKS")
