"""What needs several subjects at once: keys, limits, organizations, OpenAI's administration API."""
