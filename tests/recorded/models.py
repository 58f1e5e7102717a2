"""Names that the recorded requests and their world share."""

ORIGIN = "https://pages.example.org"
# What the demo's bootstrap makes, on an echo node as it is shipped.
ECHO = "sluice-5m"
# On scripted nodes: token ids, text alone, vectors, for nothing, and one whose node fails.
ACTOR, TEXTER, VECTORS, GRATIS, BRITTLE = "actor", "texter", "vectors", "gratis", "brittle"
# On no node.
GHOST = "ghost"
# The one word that the classifier knows.
ABUSE = "scoundrel"
