"""How much one organization may have, and how fast one person may change it."""

from controlplane.settings import env

# Living keys: those that are neither revoked nor expired.
KEYS_PER_ORGANIZATION_MAX = env.integer(
    "SLUICE_KEYS_PER_ORGANIZATION", 1_000, least=1, most=1_000_000
)
KEYS_PER_PROJECT_MAX = env.integer("SLUICE_KEYS_PER_PROJECT", 500, least=1, most=1_000_000)
PROJECTS_PER_ORGANIZATION_MAX = env.integer(
    "SLUICE_PROJECTS_PER_ORGANIZATION", 100, least=1, most=100_000
)
MEMBERS_PER_ORGANIZATION_MAX = env.integer(
    "SLUICE_MEMBERS_PER_ORGANIZATION", 500, least=1, most=100_000
)
# Of one person or admin key in one organization, however they come: pages and API alike.
CHANGES_PER_MIN_MAX = env.integer("SLUICE_CHANGES_PER_MIN", 300, least=10, most=1_000_000)
