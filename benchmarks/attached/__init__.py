"""Four attached vLLM servers behind the gateway: `make bench-attached`."""
