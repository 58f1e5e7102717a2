"""The compact torch engine: paged KV cache, continuous batching, chunked prefill, prefix cache."""
