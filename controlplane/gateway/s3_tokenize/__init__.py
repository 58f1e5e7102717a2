"""Stage 3: from messages to token ids and block hashes, once per request."""
