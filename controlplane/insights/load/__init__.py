"""Load on any OpenAI-compatible address, timed by its clients; bounded, kept and compared."""
