"""vLLM as an engine: its process, its cache events and its load."""
