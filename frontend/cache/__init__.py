"""Cache: what prefix reuse delivered, and why the rest was missed."""
