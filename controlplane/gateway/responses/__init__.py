"""OpenAI's Responses API: its requests as those of a chat, and its answers and events."""
