"""What a gateway process must know about its surroundings."""

from controlplane.settings import env

# The address that clients use for /v1, where it is not the pages' own; pages may connect to it.
GATEWAY_URL = env.text("SLUICE_GATEWAY_URL")
# Where the pages live when that is another origin: their Playground may call /v1 from a browser.
PAGES_ORIGINS = env.words("SLUICE_PAGES_ORIGINS")
# Without Redis, each gateway enforces its share of every rate limit: the limit over this number.
GATEWAY_PROCESSES = env.integer("SLUICE_GATEWAY_PROCESSES", 1, least=1, most=1024)
# Addresses of the proxies in front, whose `X-Request-Start` is believed.
TRUSTED_PROXIES = env.words("SLUICE_TRUSTED_PROXIES")
REGION = env.text("SLUICE_REGION", "local")
