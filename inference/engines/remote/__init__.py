"""An OpenAI-compatible server as an engine."""
