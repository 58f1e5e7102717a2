"""What a checkpoint folder says about its model; no weights, no torch."""
