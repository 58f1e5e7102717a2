"""Stage 1: who asks, for what, within which limits, and is there money for it.

Everything that can refuse a request before a GPU hears of it happens here; 429 is decided here.
"""
