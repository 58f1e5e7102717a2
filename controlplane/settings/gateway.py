"""What a gateway process must know about its surroundings."""

from controlplane.settings import env
from controlplane.settings.database import EMBEDDED_DATABASE

# The address that clients use for /v1, where it is not the pages' own; pages may connect to it.
GATEWAY_URL = env.text("SLUICE_GATEWAY_URL")
# Where the pages live when that is another origin: their Playground may call /v1 from a browser.
PAGES_ORIGINS = env.words("SLUICE_PAGES_ORIGINS")
# Where nodes dial this process, from wherever they stand; without it no other gateway tells them.
ADVERTISE_URL = env.address("SLUICE_ADVERTISE_URL", ("ws", "wss"), chars_max=200)
# The pools whose nodes this process takes and whose requests it serves; all where none is named.
POOLS = env.words("SLUICE_POOLS")
# How many gateway processes `manage.py sluice run` keeps: one for each core that serves traffic.
GATEWAYS_MAX = 64
GATEWAYS = env.integer("SLUICE_GATEWAYS", 1, least=1, most=GATEWAYS_MAX)
# Networks of the proxies in front, whose `X-Forwarded-For` and `X-Request-Start` are believed.
TRUSTED_PROXIES = env.network_list("SLUICE_TRUSTED_PROXIES")
# Connections that a process has open at once: in all, and from one address that is no proxy's.
CONNECTIONS_MAX = env.integer("SLUICE_CONNECTIONS_MAX", 8_192, least=16, most=1_000_000)
ADDRESS_CONNECTIONS_MAX = env.integer(
    "SLUICE_ADDRESS_CONNECTIONS_MAX", 1_024, least=1, most=1_000_000
)
# Whether members see latency, queues and counts of the whole installation, or staff alone.
SHARED_FIGURES = env.boolean("SLUICE_SHARED_FIGURES", True)
# Whether answers name their node to whoever asked; tenants are told of pools alone.
NODE_HEADER = env.boolean("SLUICE_NODE_HEADER", False)
# The first tokenizer and template offered for a model count as approved: on one's own machine,
# where every node is one's own. Otherwise staff approve each.
TRUST_FIRST_DIGEST = env.boolean("SLUICE_TRUST_FIRST_DIGEST", EMBEDDED_DATABASE)
# A request that is not done by then ends with 504; its hold lasts for the grace longer, in which a
# node may still report what it did.
SECONDS_MAX = 3_600
REQUEST_DEADLINE_S = env.integer("SLUICE_REQUEST_DEADLINE_S", 600, least=1, most=SECONDS_MAX)
HOLD_GRACE_S = env.integer("SLUICE_HOLD_GRACE_S", 120, least=1, most=SECONDS_MAX)
# Hosts whose images requests may link to; `http://` before one allows links without encryption.
IMAGE_HOSTS = tuple(host.lower() for host in env.words("SLUICE_IMAGE_HOSTS"))
# Batches: how large a file may be, for how long files are kept unless asked otherwise, and which
# part of what nodes take at once batches may have while nobody else asks, where 0 runs none here;
# beside others a gateway begins so many lines a second.
BATCH_FILE_MIB = env.integer("SLUICE_BATCH_FILE_MIB", 200, least=1, most=2_000)
BATCH_FILES_DAYS = env.integer("SLUICE_BATCH_FILES_DAYS", 30, least=1, most=3_650)
BATCH_SHARE_PERCENT = env.integer("SLUICE_BATCH_SHARE_PERCENT", 50, least=0, most=100)
BATCH_LINES_PER_S = env.integer("SLUICE_BATCH_LINES_PER_S", 5, least=1, most=10_000)
REGION = env.text("SLUICE_REGION", "local")
# Where clients are: a header that those proxies set, or else the network of the client's address.
REGION_HEADER = env.text("SLUICE_REGION_HEADER", "x-sluice-region").lower()
REGION_NETWORKS = env.networks("SLUICE_REGION_NETWORKS")
