"""Stage 5: the node's work, as seen from here: dispatch, tokens, and the times it reports."""
