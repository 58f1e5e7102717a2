"""The step loop, and what computes its steps."""
