"""Stage 4: which rule, which pool and which node; and what to do when all of them are full."""
